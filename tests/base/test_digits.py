"""Numbers as text, written without an object."""

from hypothesis import example, given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from roquette.base.digits import write_decimal, write_hex


@given(st.integers(-(2**63) + 1, 2**63 - 1))
@example(0)
@example(10**18)
@example(2**63 - 1)
def test_decimals_are_as_python_writes_them(value: int) -> None:
    writer = BytesWriter()
    writer.write(b"<")
    write_decimal(writer, value)
    assert writer.getvalue() == b"<%d" % value


@given(st.integers(-(2**63), 2**63 - 1))
def test_hexadecimals_have_sixteen_digits(value: int) -> None:
    writer = BytesWriter()
    write_hex(writer, value)
    assert writer.getvalue() == b"%016X" % (value & 2**64 - 1)
