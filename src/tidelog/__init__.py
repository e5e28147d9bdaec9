"""tidelog: Apache Kafka's message store in Python, the same directories and the same bytes.

Importing the package costs nothing: numpy, pyarrow and numba are loaded by the rooms that need them
(`tidelog.columns`, `tidelog.kernels`), never by this one.
"""

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
