from palio.model.row_parcels import RowParcel
from palio.multicast.datagrams import COUNT_BITS, Datagram


def test_a_datagram_has_an_event_or_none() -> None:
    one = Datagram("b1", 1, 7, 0, 1, bytes(8), RowParcel("p", [{"x": 1}]))
    assert one._replace(parcel=None) != one
    assert COUNT_BITS < 32
