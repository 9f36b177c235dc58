"""What every store of blocks promises, in memory and in Cassandra."""

from __future__ import annotations

from dataclasses import replace

from parallax.domain.block_rows import SECTION, BlockKey, StoredBlock
from parallax.domain.ids import RegionName, Route, RoutePartition, SourceOffset, TargetOffset
from parallax.ports.blocks import BlockName, BlocksOf, BlockWriterStore, Reached, TurnsWanted
from tests.support import unique_name

LINEAGE = -(1 << 63)
OTHER = (1 << 63) - 1
FAR = 3 * SECTION + 5


def a_block(
    partition: RoutePartition, target: int, *, lineage: int = LINEAGE, term: int = 1 << 48, version: int = 1
) -> StoredBlock:
    key = BlockKey(lineage, TargetOffset(target), SourceOffset(target // 2), term)
    return StoredBlock(partition, key, b"block %d" % target, version, b"first %d" % target)


def name_of(block: StoredBlock) -> BlockName:
    return BlockName(block.partition.route.target, block.partition.topic_partition, block.key)


def of(partition: RoutePartition, lineage: int = LINEAGE) -> BlocksOf:
    return BlocksOf(partition.route.target, partition.topic_partition, lineage)


def a_route() -> Route:
    """A route that no other test uses."""
    return Route(RegionName(unique_name("a")), RegionName("b"))


def test_blocks_of_many_sections_and_lineages_come_at_once_and_others_are_left_out(
    blocks: BlockWriterStore, partition: RoutePartition
) -> None:
    stored = [
        *(a_block(partition, target) for target in (0, 7, SECTION - 1, SECTION, FAR)),
        a_block(partition, 7, lineage=OTHER),
        a_block(partition, 7, term=2 << 48),
    ]
    blocks.write_blocks(stored)
    names = [name_of(block) for block in stored]
    unknown = names[0]._replace(key=names[0].key._replace(target_start=TargetOffset(9)))
    found = blocks.blocks([*names, names[0], unknown])
    assert found == {name_of(block): block.body for block in stored}
    assert blocks.blocks([]) == {}


def test_more_blocks_than_one_statement_names_come_at_once(
    blocks: BlockWriterStore, partition: RoutePartition
) -> None:
    stored = [a_block(partition, target) for target in range(150)]
    blocks.write_blocks(stored)
    assert len(blocks.blocks([name_of(block) for block in stored])) == 150


def test_of_two_versions_of_a_block_the_later_one_stays(
    blocks: BlockWriterStore, partition: RoutePartition
) -> None:
    block = a_block(partition, 0, version=2)
    for version, body in ((2, b"second"), (1, b"first"), (3, b"third"), (2, b"late")):
        blocks.write_blocks([replace(block, version=version, body=body)])
    assert blocks.blocks([name_of(block)]) == {name_of(block): b"third"}


def test_keys_come_in_order_of_their_lineage_alone(
    blocks: BlockWriterStore, partition: RoutePartition
) -> None:
    stored = [a_block(partition, target) for target in (FAR, 0, 7, SECTION)]
    late = a_block(partition, 7, term=2 << 48)
    blocks.write_blocks([*stored, late, a_block(partition, 8, lineage=OTHER)])
    told = sorted((block.key, block.first) for block in (*stored, late))
    assert blocks.keys_below([(of(partition), None), (of(partition, 5), None)], 10) == [told, []]
    assert blocks.keys_below([(of(partition), None)], 2) == [told[-2:]]
    assert blocks.keys_below([(of(partition), TargetOffset(7))], 10) == [told[:3]]
    assert blocks.keys_below([(of(partition), TargetOffset(7))], 2) == [told[1:3]]
    assert blocks.keys_from([(of(partition), TargetOffset(7)), (of(partition, OTHER), TargetOffset(9))]) == [
        told[1:],
        [],
    ]
    assert blocks.keys_below([], 1) == blocks.keys_from([]) == []


def test_a_block_whose_key_was_told_can_be_written_without(
    blocks: BlockWriterStore, partition: RoutePartition
) -> None:
    block = a_block(partition, 7)
    blocks.write_blocks([replace(block, first=None)])
    assert blocks.keys_below([(of(partition), None)], 1) == [[]]
    blocks.write_blocks([block])
    blocks.write_blocks([replace(block, first=None, version=2)])
    assert blocks.keys_below([(of(partition), None)], 1) == [[(block.key, b"first 7")]]


def test_turns_come_in_order_until_they_are_dropped(blocks: BlockWriterStore) -> None:
    route = a_route()
    for run_log_next in (30, 10, 20, 40):
        blocks.write_turn(route, 1, 0, run_log_next, b"turn %d" % run_log_next)
    blocks.write_turn(route, 2, 0, 99, b"of another layout")
    wanted = [TurnsWanted(route, 1, 0, 10), TurnsWanted(route, 1, 0, 40), TurnsWanted(route, 1, 1, 0)]
    assert blocks.turns(wanted) == [[(20, b"turn 20"), (30, b"turn 30"), (40, b"turn 40")], [], []]
    assert [blocks.told_up_to(item) for item in wanted] == [40, 0, 0]
    blocks.drop_turns(route, 1, 0, 30)
    assert blocks.turns(wanted) == [[(40, b"turn 40")], [], []]
    assert blocks.turns([]) == []


def test_the_latest_term_alone_says_how_far_blocks_reach(blocks: BlockWriterStore) -> None:
    route = a_route()
    assert blocks.blocks_to(route, 1, 0) == 0
    assert blocks.reached([route]) == {route: []}
    blocks.save_blocks_to(route, 1, 0, 0, 0)
    blocks.save_blocks_to(route, 1, 0, 0, 50)
    blocks.save_blocks_to(route, 1, 0, 0, 40)  # that was written before
    assert blocks.blocks_to(route, 1, 0) == 50
    blocks.save_blocks_to(route, 1, 0, 50, 50)
    blocks.save_blocks_to(route, 1, 0, 0, 70)  # a former owner is late
    assert blocks.blocks_to(route, 1, 0) == 50
    blocks.save_blocks_to(route, 1, 0, 50, 60)
    blocks.save_blocks_to(route, 2, 3, 0, 8)
    assert [blocks.blocks_to(route, *lease) for lease in ((1, 0), (2, 3), (2, 0))] == [60, 8, 0]
    other = a_route()
    assert blocks.reached([route, other]) == {
        route: [Reached(1, 0, 50, 60), Reached(2, 3, 0, 8)],
        other: [],
    }


def test_terms_follow_each_other_and_begin_where_blocks_reach(blocks: BlockWriterStore) -> None:
    route = a_route()
    assert blocks.begin_term(route, 1, 0) == (1, 0)
    blocks.save_blocks_to(route, 1, 0, 1, 50)
    assert blocks.begin_term(route, 1, 0) == (2, 50)
    assert blocks.begin_term(route, 1, 0) == (3, 50)
    blocks.save_blocks_to(route, 1, 0, 2, 70)  # a former owner is late
    assert blocks.begin_term(route, 1, 1) == (1, 0)
    assert blocks.blocks_to(route, 1, 0) == 50
    assert blocks.reached([route]) == {route: [Reached(1, 0, 3, 50), Reached(1, 1, 1, 0)]}
