//! Which blocks of metadata files bring into memory, and what holds them there.

use lotsfree_kernel_files::counters::{meminfo, vmstat};
use lotsfree_workload::{How, Policy};

use super::super::{Config, RaState, Read, Stop, Wait, WaitChannel, Write};
use super::*;
use crate::Generation;

/// Pages of memory.
const MEMORY: u64 = 1 << 15;

/// A machine with a disk of 8 GiB, and a caller.
fn mounted(filesystem: Filesystem) -> (Mm, Cx) {
    let generation = Generation::linux_6_1();
    let config = Config { filesystem, instant_reads: true, ..Config::new(generation, vec![MEMORY]) };
    let mut mm = Mm::new(&config);
    mm.mount(8 << 18);
    let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
    (mm, Cx::new(task, 0, process, 0))
}

/// Writes the first pages of a file.
fn write(mm: &mut Mm, cx: &mut Cx, file: u32, pages: u32) {
    let mut write = Write::new(0, pages * 4096, How::Buffered);
    while write.poll(mm, cx, file).is_err() {
        (cx.start, cx.spent) = (cx.now() + 1_000_000, 0);
    }
}

/// Has the disk do what it was asked for.
fn answer(mm: &mut Mm, cx: &Cx) {
    loop {
        let sent: Vec<u64> = mm.take_io().map(|io| io.id).collect();
        if sent.is_empty() {
            return;
        }
        sent.into_iter().for_each(|id| mm.complete(id, cx.now()));
    }
}

/// `fdatasync`; returns how many times it waited.
fn sync(mm: &mut Mm, cx: &mut Cx, file: u32) -> u32 {
    let mut waits = 0;
    while let Err(stop) = mm.sync(cx, file) {
        assert!(matches!(stop, Stop::Wait(Wait { channel: Some(WaitChannel::Io(_)), .. })), "{stop:?}");
        mm.end_plug(cx.task);
        answer(mm, cx);
        waits += 1;
    }
    waits
}

/// Buffers, and the pages of the buddy cache.
fn metadata(mm: &Mm) -> (u64, u64) {
    let (buffers, buddies) = (mm.buffers(), mm.ext4.as_ref().unwrap().buddies);
    let Object { base, pages, .. } = mm.objects[buddies];
    let is_there = |slot: &u32| entry::frame(mm.entries[*slot as usize]).is_some();
    (buffers, (base..base + pages).filter(is_there).count() as u64)
}

fn in_kib(
    mm: &Mm,
    counter: lotsfree_kernel_files::counters::Counter<lotsfree_kernel_files::counters::Meminfo>,
) -> u64 {
    mm.meminfo().get(counter).unwrap()
}

#[test]
fn a_group_takes_three_pages_and_a_commit_two() {
    let (mut mm, mut cx) = mounted(Filesystem::Ext4);
    let file = mm.create(&mut cx, 2048);
    // Directory, inode bitmap, and a block of the inode table.
    assert_eq!(metadata(&mm), (3, 0));
    write(&mut mm, &mut cx, file, 2048);
    assert_eq!(metadata(&mm), (3, 0), "blocks are allocated when pages are written");
    // One wait for the pages, and one for the commit.
    assert_eq!(sync(&mut mm, &mut cx, file), 2);
    assert_eq!(metadata(&mm), (3 + 1 + 2, 2));
    assert_eq!(in_kib(&mm, meminfo::Buffers), 4 * 6);
    assert_eq!(in_kib(&mm, meminfo::Cached), 4 * (2048 + 2));
    // The four blocks that were changed are dirty now.
    assert_eq!(in_kib(&mm, meminfo::Dirty), 4 * 4);
    assert_eq!(mm.check(), Ok(()));
}

#[test]
fn a_file_that_has_its_blocks_is_synced_without_a_commit() {
    let (mut mm, mut cx) = mounted(Filesystem::Ext4);
    let file = mm.declare_file(64, true);
    write(&mut mm, &mut cx, file, 64);
    assert_eq!(sync(&mut mm, &mut cx, file), 1);
    assert_eq!(metadata(&mm), (1, 0), "the inode's block alone");
}

#[test]
fn a_transaction_is_committed_after_five_seconds() {
    let (mut mm, mut cx) = mounted(Filesystem::Ext4);
    mm.create(&mut cx, 8);
    let flusher = mm.create_task();
    let run = |mm: &mut Mm, at: u64| {
        let mut cx = Cx::new(flusher, 0, usize::MAX, at);
        mm.flusher(&mut cx).until
    };
    let due = mm.commit_at().unwrap();
    assert!((COMMIT_AGE_NS..=cx.now() + COMMIT_AGE_NS).contains(&due), "{due}");
    assert!(run(&mut mm, due - 1).is_some_and(|until| until <= due), "the flusher wakes for it");
    assert_eq!((metadata(&mm).0, in_kib(&mm, meminfo::Dirty)), (3, 0));
    run(&mut mm, due);
    assert_eq!((metadata(&mm).0, in_kib(&mm, meminfo::Dirty)), (3 + 2, 3 * 4));
    assert_eq!(mm.commit_at(), None);
    assert_eq!(mm.check(), Ok(()));
}

#[test]
fn reclaim_leaves_what_the_transaction_has_changed_and_takes_the_allocator_s_pages() {
    let (mut mm, mut cx) = mounted(Filesystem::Ext4);
    let file = mm.create(&mut cx, 64);
    write(&mut mm, &mut cx, file, 64);
    sync(&mut mm, &mut cx, file);
    let changed = mm.create(&mut cx, 1);
    let held = mm.ext4.as_ref().unwrap().base + inode_block(changed);
    // Clean pages, twice as many as there is memory, each used twice.
    let stream = mm.declare_file(2 * MEMORY as u32, true);
    let mut ra = RaState::default();
    for page in 0..2 * MEMORY {
        for _ in 0..2 {
            ra.prev = u32::MAX;
            let mut read = Read::new(page * 4096, 4096, How::Buffered);
            while read.poll(&mut mm, &mut cx, stream, &mut ra).is_err() {}
        }
    }
    assert!(entry::frame(mm.entries[held as usize]).is_some());
    assert_eq!(metadata(&mm).1, 0, "the buddy pages are gone");
    assert_eq!(mm.check(), Ok(()));
    // Whoever frees the file's blocks needs them again.
    let before = mm.events[vmstat::workingset_refault_file];
    mm.delete_file(&mut cx, file).unwrap();
    assert_eq!(metadata(&mm).1, 2);
    assert!(mm.events[vmstat::workingset_refault_file] >= before + 2);
    assert_eq!(mm.check(), Ok(()));
}

#[test]
fn files_are_allocated_one_after_another_by_groups() {
    let (mut mm, mut cx) = mounted(Filesystem::Ext4);
    // The file that exists ends in the middle of the second group.
    mm.declare_file((GROUP / 2 * 3) as u32, true);
    let first = mm.create(&mut cx, 2048);
    write(&mut mm, &mut cx, first, 2048);
    sync(&mut mm, &mut cx, first);
    assert_eq!(mm.objects[first].groups, [1]);
    mm.ext4.as_mut().unwrap().next = 2 * GROUP - 1000;
    let second = mm.truncate(&mut cx, first, 2048);
    assert!(mm.objects[second].groups.is_empty());
    write(&mut mm, &mut cx, second, 2048);
    sync(&mut mm, &mut cx, second);
    assert_eq!(mm.objects[second].groups, [1, 2]);
    assert_eq!(metadata(&mm).1, 4);
}

#[test]
fn the_log_begins_again_at_its_end() {
    let (mut mm, mut cx) = mounted(Filesystem::Ext4);
    mm.create(&mut cx, 1);
    mm.ext4.as_mut().unwrap().log = BITMAPS - 4;
    mm.commit(&mut cx);
    assert_eq!(mm.ext4.as_ref().unwrap().log, FIRST_IN_LOG + 3 + 2);
    assert_eq!(mm.check(), Ok(()));
}

#[test]
fn other_file_systems_have_none() {
    for filesystem in [Filesystem::Ext3, Filesystem::Xfs, Filesystem::Btrfs] {
        let (mut mm, mut cx) = mounted(filesystem);
        let file = mm.create(&mut cx, 64);
        write(&mut mm, &mut cx, file, 64);
        assert_eq!(sync(&mut mm, &mut cx, file), 1);
        assert_eq!(in_kib(&mm, meminfo::Buffers), 0);
    }
}

#[test]
fn kernels_whose_writers_write_themselves_have_none_in_the_model() {
    let mut mm = Mm::new(&Config::new(Generation::linux_3_0(), vec![MEMORY]));
    mm.mount(8 << 18);
    assert!(mm.ext4.is_none());
    let mut mm = Mm::new(&Config::new(Generation::linux_3_10(), vec![MEMORY]));
    mm.mount(8 << 18);
    assert!(mm.ext4.is_some());
}
