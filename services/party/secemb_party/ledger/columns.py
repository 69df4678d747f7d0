"""Column types that refuse what does not fit before the database sees it."""

from sqlalchemy import Dialect, LargeBinary, String, TypeDecorator

from secemb_party.ledger.errors import LedgerFormatError


class FixedBytes(TypeDecorator[bytes]):
    """Exactly so many bytes: a digest is 32, a session id 16."""

    impl = LargeBinary
    cache_ok = True

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        """Let a value through that has the right length."""
        if value is not None and len(value) != self.size:
            raise LedgerFormatError(f"{self.size} bytes are needed here, these are {len(value)}")
        return value


class ShortText(TypeDecorator[str]):
    """A name or a reason of at least one character and at most so many; SQLite itself would take any length."""

    impl = String
    cache_ok = True

    def __init__(self, longest: int) -> None:
        super().__init__(longest)
        self.longest = longest

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Let a text through that fits, without NUL, which PostgreSQL cannot store."""
        if value is not None and (not 1 <= len(value) <= self.longest or "\0" in value):
            raise LedgerFormatError(f"a text of 1 to {self.longest} characters is needed here, without NUL")
        return value
