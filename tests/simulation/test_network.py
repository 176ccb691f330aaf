"""The simulated network keeps the promises of a stream, and no others."""

from veredus.sim.network import Carelessness, End, Network, NetworkTemper
from veredus.sim.world import MILLISECOND, SECOND, World


class Scene:
    """Two ends of one link, and what each received and heard."""

    def __init__(self, seed: int = 1, temper: NetworkTemper | None = None) -> None:
        self.world = World(seed)
        self.network = Network(self.world, temper or NetworkTemper())
        self.received: dict[str, list[object]] = {"near": [], "far": []}
        self.closed: dict[str, list[str]] = {"near": [], "far": []}
        self.flow: list[bool] = []
        self.near: End | None = None
        self.network.listen("far", self._accept)
        self.network.connect("near", "far", self._answered)
        self.world.run(SECOND)
        assert self.near is not None
        self.start_ns = self.world.now_ns

    def _accept(self, end: End) -> bool:
        self.far = end
        self._watch(end)
        return True

    def _answered(self, end: End | None) -> None:
        assert end is not None
        self.near = end
        self._watch(end)
        end.on_flow = self.flow.append

    def _watch(self, end: End) -> None:
        end.on_received = self.received[end.owner].append
        end.on_closed = self.closed[end.owner].append

    def send(self, *items: bytes) -> None:
        assert self.near is not None
        self.near.send(items)

    def run(self, duration_ns: int = SECOND) -> None:
        self.world.run(self.world.now_ns + duration_ns)

    @property
    def bytes_received(self) -> bytes:
        return b"".join(item for item in self.received["far"] if isinstance(item, bytes))


TEXT = [b"%d," % n * (n % 7 + 1) for n in range(200)]


def test_bytes_arrive_in_order_however_they_are_torn_and_delayed() -> None:
    for seed in range(10):
        scene = Scene(seed, NetworkTemper(tear=1.0, spike=0.2))
        scene.send(*TEXT)
        scene.run(200 * SECOND)
        assert scene.bytes_received == b"".join(TEXT)
        assert len(scene.received["far"]) > len(TEXT)


def test_a_cut_link_delivers_a_beginning_and_each_end_hears_of_it_once() -> None:
    sizes = set()
    for seed in range(20):
        scene = Scene(seed, NetworkTemper(tear=1.0, half_open=0.5))
        scene.send(*TEXT)
        scene.run(MILLISECOND // 2 + seed * 20_000)
        (link,) = scene.network.links_of("near")
        link.cut("cut")
        scene.run(10 * SECOND)
        assert b"".join(TEXT).startswith(scene.bytes_received)
        assert scene.closed == {"near": ["cut"], "far": ["cut"]}
        sizes.add(len(scene.bytes_received))
    assert len(sizes) > 5


def test_a_closed_end_is_heard_of_behind_what_was_sent_before() -> None:
    scene = Scene()
    scene.send(b"last words")
    assert scene.near is not None
    scene.near.close("done")
    scene.send(b"never")
    scene.run()
    assert (scene.bytes_received, scene.closed["far"]) == (b"last words", ["done"])


def test_a_blocked_way_holds_back_and_loses_nothing() -> None:
    scene = Scene()
    scene.network.block("near", "far", scene.start_ns + 5 * SECOND)
    scene.send(b"held back")
    scene.far.send((b"the other way is open",))
    scene.run(4 * SECOND)
    assert (scene.bytes_received, scene.received["near"]) == (b"", [b"the other way is open"])
    scene.run(2 * SECOND)
    assert scene.bytes_received == b"held back"


def test_a_paused_end_receives_nothing_and_its_peer_is_told_of_congestion() -> None:
    scene = Scene(temper=NetworkTemper(tear=0.0))
    scene.far.pause()
    scene.send(*[b"x" * 10_000] * 7)
    scene.run()
    assert (scene.received["far"], scene.flow) == ([], [True])
    scene.far.resume()
    scene.run()
    assert (len(scene.received["far"]), scene.flow) == (7, [True, False])


def test_nobody_is_reached_where_nobody_listens() -> None:
    scene = Scene()
    answers: list[End | None] = []
    scene.network.connect("near", "nowhere", answers.append)
    scene.run()
    assert answers == [None]


def test_a_partition_holds_back_what_it_parts_and_lets_it_on_when_it_is_over() -> None:
    scene = Scene()
    scene.network.part(lambda sender, receiver: (sender, receiver) == ("near", "far"), scene.start_ns + 5 * SECOND)
    scene.send(b"held")
    scene.far.send((b"answer",))
    scene.run(4 * SECOND)
    assert scene.received == {"near": [b"answer"], "far": []}
    scene.run(2 * SECOND)
    assert scene.bytes_received == b"held"


def test_a_slow_way_takes_its_time_for_each_byte() -> None:
    scene = Scene(temper=NetworkTemper(throttle=1.0, rate_min=10 << 20))
    scene.send(bytes(10 << 20))
    scene.run(900 * MILLISECOND)
    assert scene.bytes_received == b""
    scene.run(200 * MILLISECOND)
    assert len(scene.bytes_received) == 10 << 20


def test_a_careless_network_loses_repeats_and_reorders_what_may_bear_it_and_nothing_else() -> None:
    scene = Scene(temper=NetworkTemper(tear=0.0))
    items = [b"%d" % n for n in range(1000)]
    scene.network.carelessness = Carelessness(0.2, 0.2, 0.2, lambda item: isinstance(item, bytes) and int(item) >= 500)
    scene.send(*items)
    scene.run()
    came = [int(item) for item in scene.received["far"] if isinstance(item, bytes)]
    assert came[:500] == list(range(500))
    borne = came[500:]
    assert 300 < len(set(borne)) < 500, "some were lost"
    assert len(borne) > len(set(borne)), "some came twice"
    assert borne != sorted(borne), "some were overtaken"
