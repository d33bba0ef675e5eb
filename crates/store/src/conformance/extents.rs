//! Extents and holes: MS-FSA 2.1.5.10.4, 2.1.5.10.22 and 2.1.5.10.39.

use alloc::vec;
use alloc::vec::Vec;

use super::{CREATE, Foreign, READ, Subject, WRITE};
use crate::vfs::{Allocated, ExtentCopy, Fault, Node};

fn all_of(node: &dyn Node) -> Vec<u8> {
    let mut bytes = vec![0; node.stat().unwrap().end_of_file as usize];
    assert_eq!(node.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn copy(source_offset: u64, target_offset: u64, length: u64) -> ExtentCopy {
    ExtentCopy { source_offset, target_offset, length, is_atomic: false }
}

/// Tests that shared extents read alike and change independently, or that the volume says it cannot
/// share.
pub fn extents_are_shared_or_not_at_all(s: &dyn Subject) {
    let cluster = u64::from(s.vfs().volume().cluster);
    assert!(cluster.is_power_of_two() && cluster >= 512);
    let unit = cluster as usize;
    let source = s.open("source", &CREATE).unwrap().node;
    let target = s.open("target", &CREATE).unwrap().node;
    let pattern: Vec<u8> = (0..4 * unit).map(|at| (at / unit + 1) as u8).collect();
    source.write_at(0, &pattern).unwrap();
    source.write_at(4 * cluster, b"tail").unwrap();
    target.write_at(0, &vec![9; 3 * unit]).unwrap();
    if !s.vfs().volume().shares_extents {
        let refused = target.share_extents(&*source, &copy(0, 0, cluster));
        assert_eq!(refused, Err(Fault::NotSupported));
        assert_eq!(all_of(&*target), vec![9; 3 * unit]);
        return;
    }
    for is_atomic in [false, true] {
        let range = ExtentCopy { is_atomic, ..copy(2 * cluster, cluster, cluster) };
        target.share_extents(&*source, &range).unwrap();
        let bytes = all_of(&*target);
        assert_eq!(bytes.len(), 3 * unit);
        let first = |at: usize| bytes[at * unit];
        assert_eq!([first(0), first(1), first(2)], [9, 3, 9]);
        // After the copy the files share extents, but a write to one of them must not change the
        // other.
        target.write_at(cluster, &[7]).unwrap();
        source.write_at(2 * cluster + 1, &[8]).unwrap();
        assert_eq!(all_of(&*target)[unit..unit + 2], [7, 3]);
        assert_eq!(all_of(&*source)[2 * unit..2 * unit + 2], [3, 8]);
        source.write_at(2 * cluster + 1, &[3]).unwrap();
    }
    // A copy to the end of the source includes its last, incomplete cluster.
    target.share_extents(&*source, &copy(cluster, 2 * cluster, 3 * cluster + 4)).unwrap();
    let bytes = all_of(&*target);
    assert_eq!((bytes.len(), &bytes[5 * unit..]), (5 * unit + 4, &b"tail"[..]));
    // Source and target may be the same file if the ranges do not overlap. A copy of length 0
    // changes nothing.
    source.share_extents(&*source, &copy(0, 3 * cluster, cluster)).unwrap();
    assert_eq!(all_of(&*source)[3 * unit], 1);
    target.share_extents(&*source, &copy(0, 0, 0)).unwrap();
    assert_eq!(all_of(&*target), bytes);
}

/// Tests the refusals: ranges that are not aligned, overlap or lie outside the file, and nodes
/// without the right.
pub fn extents_need_rights_and_sense(s: &dyn Subject) {
    let volume = s.vfs().volume();
    if !volume.shares_extents {
        return;
    }
    let cluster = u64::from(volume.cluster);
    let source = s.open("source", &CREATE).unwrap().node;
    source.write_at(0, &vec![1; 4 * cluster as usize]).unwrap();
    let target = s.open("target", &CREATE).unwrap().node;
    target.write_at(0, &vec![2; 4 * cluster as usize]).unwrap();
    for range in [
        copy(1, 0, cluster),
        copy(0, 1, cluster),
        copy(0, 0, cluster - 1),
        copy(4 * cluster, 0, cluster),
        copy(0, 0, 5 * cluster),
    ] {
        assert_eq!(target.share_extents(&*source, &range), Err(Fault::Invalid), "{range:?}");
    }
    let overlaps = source.share_extents(&*source, &copy(0, cluster, 2 * cluster));
    assert_eq!(overlaps, Err(Fault::Invalid));
    let foreign = target.share_extents(&Foreign, &copy(0, 0, cluster));
    assert_eq!(foreign, Err(Fault::CrossDevice));
    let reader = s.open("target", &READ).unwrap().node;
    let refused = reader.share_extents(&*source, &copy(0, 0, cluster));
    assert_eq!(refused, Err(Fault::AccessDenied));
    assert_eq!(all_of(&*target), vec![2; 4 * cluster as usize]);
}

/// Tests zeroed ranges, and that punching a hole gives its space back.
pub fn zeros_are_read_and_holes_are_seen(s: &dyn Subject) {
    const PIECE: u64 = 1 << 16;
    if !s.vfs().volume().sparse {
        return;
    }
    let made = s.open("f", &CREATE).unwrap().node;
    made.write_at(0, &vec![1; 4 * PIECE as usize + 3]).unwrap();
    made.zero(PIECE, PIECE, true).unwrap();
    made.zero(3 * PIECE + 5, 10 * PIECE, true).unwrap();
    let end = 4 * PIECE + 3;
    let bytes = all_of(&*made);
    assert_eq!(bytes.len() as u64, end);
    for (at, byte) in bytes.iter().enumerate() {
        let at = at as u64;
        let zero = (PIECE..2 * PIECE).contains(&at) || at >= 3 * PIECE + 5;
        assert_eq!(*byte == 0, zero, "byte {at}");
    }
    let Allocated { ranges, has_more } = made.allocated(0, end, 10).unwrap();
    assert!(!has_more);
    assert_eq!(ranges[0], (0, PIECE));
    assert_eq!(ranges[1].0, 2 * PIECE);
    assert!(ranges[1].1 >= 3 * PIECE + 5 && ranges[1].1 < 4 * PIECE);
    let first = made.allocated(10, end, 1).unwrap();
    assert_eq!(first, Allocated { ranges: vec![(10, PIECE)], has_more: true });
    let hole = made.allocated(PIECE, 2 * PIECE, 10).unwrap();
    assert_eq!(hole, Allocated::default());
    // A range that is zeroed without freeing its space must read as zeros, too.
    made.zero(0, 4096, false).unwrap();
    assert_eq!(all_of(&*made)[..4097], [vec![0; 4096], vec![1]].concat());
    let reader = s.open("f", &READ).unwrap().node;
    assert_eq!(reader.zero(0, 1, true), Err(Fault::AccessDenied));
    let writer = s.open("f", &WRITE).unwrap().node;
    writer.zero(0, u64::from(u16::MAX), true).unwrap();
}
