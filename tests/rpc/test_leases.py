"""Who gets which device, by the table of leases alone, with a clock of the tests' own."""

from __future__ import annotations

import random

from tilewright.rpc.serving.leases import CLAIM_SECONDS, DEVICE_SECONDS, Entry, LeaseTable, Waiting
from tilewright.rpc.serving.tickets import Tickets, make_ticket


class Desk:
    """A lease table with a clock, and devices that begin and end sessions at once."""

    def __init__(self) -> None:
        self.now, self.leases = 0.0, LeaseTable(0.0)
        self.granted: list[str] = []
        self.running: dict[int, list[str]] = {}

    def device(self, name: str = "d", slots: int = 1) -> int:
        number = self.leases.register(Entry(name, "", "", slots, self.now, b""))
        self.running[number] = []
        self.settle()
        return number

    def want(self, client: str, priority: int = 0, name: str = "d") -> Waiting:
        request = self.leases.want(name, client, priority)
        self.settle()
        return request

    def settle(self) -> None:
        """Grant what can be granted; sessions begin at once."""
        while found := self.leases.grantable():
            request, entry = found
            ticket = f"{request.client}-{request.number}"
            self.leases.grant(request, entry, ticket, self.now)
            self.granted.append(request.client)
            number = next(n for n, e in self.leases.devices.items() if e is entry)
            self.running[number].append(ticket)
            self.beat(number)

    def beat(self, number: int, ended: tuple[str, ...] = ()) -> None:
        self.leases.beat(number, self.running[number], ended, self.now)

    def end(self, number: int, after: float = 1.0) -> None:
        """The first session of a device ends."""
        self.now += after
        ticket = self.running[number].pop(0)
        self.beat(number, (ticket,))
        self.settle()


def test_first_come_first_served() -> None:
    desk = Desk()
    device = desk.device()
    for _ in range(3):
        desk.want("a")
    assert desk.granted == ["a"]
    desk.end(device)
    desk.end(device)
    assert desk.granted == ["a"] * 3 and not desk.leases.waiting


def test_higher_priorities_go_first() -> None:
    desk = Desk()
    device = desk.device()
    desk.want("holder")
    for client, priority in [("low", -1), ("middle", 0), ("high", 5), ("middle2", 0)]:
        desk.want(client, priority)
    for _ in range(4):
        desk.end(device)
    assert desk.granted == ["holder", "high", "middle", "middle2", "low"]


def test_clients_have_equal_shares_however_much_they_ask_for() -> None:
    desk = Desk()
    device = desk.device()
    for _ in range(50):
        desk.want("greedy")
    for _ in range(10):
        desk.want("modest")
    for _ in range(20):
        desk.end(device)
    assert desk.granted[:21].count("modest") >= 9


def test_shares_are_of_time_and_not_of_turns() -> None:
    desk = Desk()
    device = desk.device()
    for _ in range(40):
        desk.want("long")
        desk.want("short")
    while len(desk.granted) < 40:
        desk.end(device, 4.0 if desk.running[device][0].startswith("long") else 1.0)
    assert 28 <= desk.granted.count("short") <= 36


def test_newcomers_are_owed_nothing_for_the_past() -> None:
    desk = Desk()
    device = desk.device()
    for _ in range(30):
        desk.want("old")
    for _ in range(10):
        desk.end(device, 100.0)
    for _ in range(30):
        desk.want("new")
    for _ in range(10):
        desk.end(device, 1.0)
    assert 4 <= desk.granted[11:].count("new") <= 7


def test_a_device_that_is_silent_is_gone_and_requests_wait_for_another() -> None:
    desk = Desk()
    first = desk.device()
    desk.want("a")
    desk.now += DEVICE_SECONDS + 1
    waiting = desk.want("b")
    desk.leases.tick(desk.now)
    assert not desk.leases.devices and waiting.granted is None
    assert not desk.leases.beat(first, (), (), desk.now)
    desk.device()
    assert waiting.granted is not None


def test_names_keep_devices_apart() -> None:
    desk = Desk()
    desk.device("rasp4")
    other = desk.want("a", name="jetson")
    assert other.granted is None
    desk.device("jetson")
    assert other.granted is not None and other.granted[0].name == "jetson"


def test_what_is_not_claimed_in_time_is_given_to_others() -> None:
    leases = LeaseTable(0.0)
    leases.register(Entry("d", "", "", 1, 0.0, b""))
    first, second = leases.want("d", "a", 0), leases.want("d", "b", 0)
    request, entry = leases.grantable() or (None, None)
    assert request is first and entry is not None
    leases.grant(first, entry, "t1", 0.0)
    entry.seen = CLAIM_SECONDS + 1
    leases.tick(CLAIM_SECONDS - 1)
    assert leases.grantable() is None
    leases.tick(CLAIM_SECONDS + 1)
    assert (leases.grantable() or (None,))[0] is second


def test_a_cancelled_request_frees_what_it_was_given() -> None:
    leases = LeaseTable(0.0)
    leases.register(Entry("d", "", "", 1, 0.0, b""))
    first, second = leases.want("d", "a", 0), leases.want("d", "b", 0)
    _, entry = leases.grantable() or (None, None)
    assert entry is not None
    leases.grant(first, entry, "t1", 0.0)
    leases.cancel(first)
    leases.cancel(second)
    assert entry.is_free and not leases.waiting


def test_a_tracker_that_starts_anew_learns_what_is_in_use() -> None:
    desk = Desk()
    number = desk.leases.register(Entry("d", "", "", 1, 0.0, b""))
    desk.leases.beat(number, ["of another tracker"], (), 0.0)
    assert desk.want("a").granted is None
    desk.running[number] = []
    desk.beat(number)
    desk.settle()
    assert desk.granted == ["a"]


def test_no_device_has_more_than_its_sessions() -> None:
    """Whatever happens in whatever order; and all who wait are served in the end."""
    for seed in range(20):
        rng, desk = random.Random(seed), Desk()
        numbers = [desk.device(slots=rng.choice((1, 2, 3))) for _ in range(3)]
        for _ in range(200):
            desk.now += rng.random()
            for number in numbers:
                desk.beat(number)
            at_work = [n for n in numbers if desk.running[n]]
            if rng.random() < 0.5 or not at_work:
                desk.want(rng.choice("abcd"), rng.choice((0, 0, 1)))
            else:
                desk.end(rng.choice(at_work), rng.random())
            for number in numbers:
                entry = desk.leases.devices[number]
                assert len(entry.leases) <= entry.slots
                assert set(entry.leases) == set(desk.running[number])
        while desk.leases.waiting:
            desk.end(next(n for n in numbers if desk.running[n]), 0.1)


def test_tickets_are_for_one_server_and_one_time() -> None:
    key = bytes(32)
    tickets, others = Tickets(key, "t:1"), Tickets(key, "t:1")
    ticket = make_ticket(key, tickets.identity)
    assert "request it there" in others.why_not(ticket)
    assert tickets.why_not(ticket) == ""
    assert tickets.why_not(ticket) == "the ticket has been used"
    assert "request it there" in tickets.why_not(bytes(32))
    forged = make_ticket(b"x" * 32, tickets.identity)
    assert "request it there" in tickets.why_not(forged)
