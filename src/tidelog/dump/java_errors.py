"""Java exceptions as the real tool lets them out: a class, a message, a cause.

What ends the real tool early is an exception nobody catches, and what a user sees of it is part of the tool's text. We
print the lines that name exceptions and leave out the stack frames between them.

    >>> print(*JavaError("a.B", "why", JavaError("c.D")).lines(), sep="\\n")
    Exception in thread "main" a.B: why
    Caused by: c.D
"""

from collections.abc import Iterator

__all__ = [
    "REFERENCE_SIZE",
    "JavaError",
    "caused_by",
    "ensure_heap",
    "heap_error",
    "illegal_argument",
    "made_by_reflection",
    "no_such_element",
    "null_pointer",
    "number_format",
]

_HEAP = 256 * 1024 * 1024
_LARGEST_ARRAY = (1 << 31) - 2
REFERENCE_SIZE = 4  # of an item in an array of objects
_IO_EXCEPTIONS = {
    "java.io.EOFException",
    "java.io.IOException",
    "java.util.zip.ZipException",
    "org.xerial.snappy.SnappyIOException",
    "com.github.luben.zstd.ZstdIOException",
}


class JavaError(Exception):
    """An exception that ends the tool with exit code 1."""

    def __init__(self, class_name: str, message: str | None = None, cause: "JavaError | None" = None) -> None:
        super().__init__(class_name, message)
        self.class_name = class_name
        self.message = message
        self.cause = cause

    def __str__(self) -> str:
        """As Java's toString() gives it.

        >>> str(JavaError("java.io.EOFException", ""))
        'java.io.EOFException: '
        """
        return self.class_name if self.message is None else f"{self.class_name}: {self.message}"

    @property
    def is_io(self) -> bool:
        """Whether Java would catch it as an IOException."""
        return self.class_name in _IO_EXCEPTIONS

    def lines(self) -> Iterator[str]:
        """What Java writes to standard error, without stack frames."""
        yield f'Exception in thread "main" {self}'
        cause = self.cause
        while cause is not None:
            yield f"Caused by: {cause}"
            cause = cause.cause


def caused_by(class_name: str, cause: JavaError) -> JavaError:
    """An exception that was given a cause and no message: it takes the cause's own text for one."""
    return JavaError(class_name, str(cause), cause)


def ensure_heap(size: int, item_size: int = 1) -> None:
    """Refuse an array of `size` items that does not fit into the 256 MB that Kafka gives its tools."""
    error = heap_error(size, item_size)
    if error is not None:
        raise error


def heap_error(size: int, item_size: int = 1) -> JavaError | None:
    """What Java throws at an array that is too large."""
    if size >= _LARGEST_ARRAY:
        return JavaError("java.lang.OutOfMemoryError", "Requested array size exceeds VM limit")
    return JavaError("java.lang.OutOfMemoryError", "Java heap space") if size * item_size > _HEAP else None


def made_by_reflection(cause: JavaError | None) -> JavaError:
    """What comes out of a constructor that Kafka calls by reflection, when it throws."""
    reflection = "java.lang.reflect.InvocationTargetException"
    return JavaError("org.apache.kafka.common.KafkaException", reflection, JavaError(reflection, None, cause))


def illegal_argument(message: str | None) -> JavaError:
    """What Java throws at an argument that cannot be."""
    return JavaError("java.lang.IllegalArgumentException", message)


def null_pointer(call: str, what: str) -> JavaError:
    """The words of a current Java for a call on nothing."""
    return JavaError("java.lang.NullPointerException", f'Cannot invoke "{call}" because {what} is null')


def no_such_element() -> JavaError:
    """What an iterator throws when there is nothing left."""
    return JavaError("java.util.NoSuchElementException")


def number_format(text: str) -> JavaError:
    """What Long.parseLong throws at a text that is no number.

    >>> str(number_format("abc"))
    'java.lang.NumberFormatException: For input string: "abc"'
    """
    return JavaError("java.lang.NumberFormatException", f'For input string: "{text}"')
