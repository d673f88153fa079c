//! What ext4 keeps in the page cache beside the pages of files (`fs/ext4`, `fs/jbd2`, `fs/buffer.c`).
//!
//! ```text
//! write ──────────── block of the inode table ──┐                             ┌─▶ log
//! writeback ───┬──── bitmap, inode ─────────────┼─▶ running transaction ──────┤
//! truncate, ───┤                                │     (its pages stay)        └─▶ dirty ─▶ flusher
//! unlink       └──── buddy pages of the group   │   5 s after it began, or fdatasync
//! create ─────────── directory, inode bitmap ───┘
//! ```
//!
//! Blocks of metadata are pages of the block device's mapping, which `/proc/meminfo` shows as `Buffers`. Each
//! lookup of one is an access (`sb_getblk`, `touch_buffer`), so that a block that is looked up twice is
//! active. Of each group of 128 MiB in which blocks are allocated or freed there are the bitmap and, in a
//! mapping of its own that counts as `Cached`, two pages with what the allocator makes of the bitmap
//! (`ext4_mb_load_buddy`). They are pages like any other: on the lists, with shadows, read again after
//! reclaim took them. A block that the running transaction of the journal has changed stays in memory; once
//! the transaction is in the log its blocks are dirty, and the flusher writes them.
//!
//! Linux 6.1 with 8 GiB of disk and 512 MiB of memory, beside a file of 150 MiB that was written again and
//! again for a minute, read or made 72 such pages in all: two for each commit, three for each new group.
//!
//! Not modelled: other file systems (XFS has its metadata in buffers of its own, Btrfs in a mapping of an
//! inode, ext3 no buddy pages but indirect blocks); super block and group descriptors, which are in use
//! while the file system is mounted; blocks of extent trees, which a file has that is longer than four
//! extents of 128 MiB, or for a while when its extents were not yet written; where free blocks are: files are
//! allocated one after another. Nobody waits for a block of metadata that is being read.

use lotsfree_scenario::Filesystem;
use lotsfree_units::PageSize;

use super::frame::entry;
use super::object::{Backing, Object, RUN};
use super::page_writeback::BIO;
use super::wbt::Writer;
use super::workingset::Tree;
use super::{BLOCK, Cx, Device, Mm};

/// Blocks of a group: as many as a block has bits (`EXT4_BLOCKS_PER_GROUP`).
const GROUP: u64 = 8 * BLOCK;
/// The most groups that have pages of their own, on half a TiB. On larger disks some share them.
const MOST_GROUPS: u64 = 1 << 12;
/// The most blocks that writeback allocates at a time.
const EXTENT: u64 = BIO.0 / BLOCK;
/// Inodes of a block of the table: of 256 bytes, as `mke2fs.conf` has them.
const INODES_PER_BLOCK: u32 = BLOCK as u32 / 256;
/// Blocks of the inode table. Inodes have the numbers of the model's objects, from which they start again.
const INODE_TABLE: u32 = 256;
/// Blocks of the log: 64 MiB, as the lab makes its file systems.
const LOG: u32 = 64 << 8;
/// JBD2_DEFAULT_MAX_COMMIT_AGE: nanoseconds after which a transaction is committed.
const COMMIT_AGE_NS: u64 = 5_000_000_000;

/// The block of the root directory, which all files are in.
const DIRECTORY: u32 = 0;
/// The bitmap of the inodes.
const INODE_BITMAP: u32 = 1;
/// The first block of the inode table.
const INODES: u32 = 2;
/// The first block of the log, behind the journal's own super block.
const FIRST_IN_LOG: u32 = INODES + INODE_TABLE;
/// The first bitmap of blocks.
const BITMAPS: u32 = FIRST_IN_LOG + LOG;

/// What a block holds that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// What was written to the disk (`sb_bread`).
    OnDisk,
    /// What the caller puts there (`sb_getblk`).
    New,
}

/// The mounted file system.
#[derive(Debug)]
pub(crate) struct Ext4 {
    /// The mapping of the block device, its first slot and its length.
    device: u32,
    base: u32,
    blocks: u32,
    /// The mapping of the buddy cache, two pages for each group (`s_buddy_cache`).
    buddies: u32,
    groups: u32,
    /// The block behind those that were allocated last (`s_mb_last_group`, `s_mb_last_start`).
    next: u64,
    /// Slots of the blocks that the running transaction has changed.
    running: Vec<u32>,
    /// Its number.
    tid: u64,
    /// When it is to be committed, if it has changed anything.
    commit_at: Option<u64>,
    /// The next block of the log.
    log: u32,
    /// Pages taken, ever.
    pub(crate) taken: u64,
}

impl Ext4 {
    /// Whether a page must not be freed, because the running transaction has changed it.
    #[inline]
    pub(super) fn holds(&self, slot: u32) -> bool {
        slot.wrapping_sub(self.base) < self.blocks && self.running.contains(&slot)
    }

    /// The group of a block.
    fn group_of(&self, block: u64) -> u32 {
        (block / GROUP % u64::from(self.groups)) as u32
    }

    /// Takes the next blocks, and returns their groups.
    fn allocate(&mut self, blocks: u64) -> std::ops::RangeInclusive<u64> {
        let first = self.next;
        self.next += blocks;
        first / GROUP..=(self.next - 1) / GROUP
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        super::footprint::of(&self.running)
    }
}

/// The block of the table that has an inode.
fn inode_block(number: u32) -> u32 {
    INODES + number / INODES_PER_BLOCK % INODE_TABLE
}

impl Mm {
    /// Mounts the file system, of this number of blocks. Without it, on file systems other than ext4, with
    /// pages that are larger than a block, and in generations without `ext4_metadata`, files have no
    /// metadata.
    pub fn mount(&mut self, blocks: u64) {
        let has = self.generation.ext4_metadata && self.page == PageSize::X86;
        if self.filesystem != Filesystem::Ext4 || !has {
            return;
        }
        let groups = blocks.div_ceil(GROUP).clamp(1, MOST_GROUPS) as u32;
        let blocks = BITMAPS + groups;
        let device = self.create_file(blocks, Backing::Disk);
        let buddies = self.create_file(2 * groups, Backing::Hole);
        self.ext4 = Some(Box::new(Ext4 {
            device,
            base: self.objects[device].base,
            blocks,
            buddies,
            groups,
            next: 0,
            running: Vec::new(),
            tid: 1,
            commit_at: None,
            log: FIRST_IN_LOG,
            taken: 0,
        }));
    }

    /// Pages of the block device's mapping (`nr_blockdev_pages`).
    pub(crate) fn buffers(&self) -> u64 {
        let Some(ext4) = &self.ext4 else { return 0 };
        let (first, count) = (ext4.base / RUN, ext4.blocks.div_ceil(RUN));
        let nodes = &self.tree.nodes[Tree::Files as usize][first as usize..(first + count) as usize];
        nodes.iter().map(|node| u64::from(node.holds.pages())).sum()
    }

    /// Gives a file that exists its place on the disk.
    pub(super) fn lay_out(&mut self, number: u32) {
        let Some(ext4) = &mut self.ext4 else { return };
        let object = &mut self.objects[number];
        if object.pages > 0 {
            object.groups.extend(ext4.allocate(object.pages.into()).map(|group| group as u32));
        }
    }

    /// Creates a file (`ext4_create`), and returns its object.
    pub fn create(&mut self, cx: &mut Cx, pages: u32) -> u32 {
        let number = self.declare_file(pages, false);
        self.change_blocks(cx, [DIRECTORY, INODE_BITMAP, inode_block(number)]);
        number
    }

    /// Frees the blocks of a file that is truncated or removed (`ext4_free_blocks`), and with `unlinked` its
    /// inode and its name. The allocator learns of the blocks when the transaction is committed
    /// (`ext4_process_freed_data`); the pages that this takes are looked up here.
    pub(super) fn free_blocks(&mut self, cx: &mut Cx, number: u32, unlinked: bool) {
        if self.ext4.is_none() {
            return;
        }
        if unlinked {
            self.change_blocks(cx, [DIRECTORY, INODE_BITMAP]);
        }
        self.change_blocks(cx, [inode_block(number)]);
        for group in std::mem::take(&mut self.objects[number].groups) {
            self.change_group(cx, group.into());
        }
    }

    /// Notes that a call writes to a file, whose time and perhaps size change (`ext4_dirty_inode`).
    #[inline]
    pub(super) fn dirty_inode(&mut self, cx: &mut Cx, number: u32) {
        if self.ext4.is_some() {
            self.change_blocks(cx, [inode_block(number)]);
        }
    }

    /// Allocates blocks for the pages of a file that have got a place on disk since it had `before`
    /// (`ext4_writepages`), an extent after another.
    pub(super) fn map_blocks(&mut self, cx: &mut Cx, number: u32, before: u32) {
        let Object { hole, allocated, .. } = &self.objects[number];
        let (hole, allocated) = (*hole, *allocated);
        let mut left = u64::from(allocated.saturating_sub(before));
        while hole && left > 0 {
            let Some(ext4) = &mut self.ext4 else { return };
            let blocks = left.min(EXTENT);
            left -= blocks;
            let tid = ext4.tid;
            for group in ext4.allocate(blocks) {
                let group = group as u32;
                let object = &mut self.objects[number];
                object.datasync_tid = tid;
                if object.groups.last() != Some(&group) {
                    object.groups.push(group);
                }
                self.change_group(cx, group.into());
            }
            // Extent, count of blocks, size: the inode is looked up at each.
            self.change_blocks(cx, [inode_block(number); 2]);
        }
    }

    /// Looks up the allocator's two pages of a group, and changes its bitmap.
    fn change_group(&mut self, cx: &mut Cx, group: u64) {
        let Some(ext4) = &self.ext4 else { return };
        let (group, buddies) = (ext4.group_of(group * GROUP), ext4.buddies);
        let base = self.objects[buddies].base + 2 * group;
        for slot in [base, base + 1] {
            let e = self.entries[slot as usize];
            if entry::frame(e).is_none() {
                // They are made of the bitmap, which is read for that (`ext4_mb_init_cache`).
                self.getblk(cx, BITMAPS + group, Contents::OnDisk);
                self.find_or_create_page(cx, slot);
            }
            self.access(slot);
            if e == entry::EMPTY {
                // They are made for the first time, and then looked up (`ext4_mb_init_group`).
                self.access(slot);
            }
        }
        self.change_blocks(cx, [BITMAPS + group]);
    }

    /// Looks up blocks and changes them in the running transaction (`ext4_handle_dirty_metadata`).
    fn change_blocks<const COUNT: usize>(&mut self, cx: &mut Cx, blocks: [u32; COUNT]) {
        for block in blocks {
            let Some(slot) = self.getblk(cx, block, Contents::OnDisk) else { continue };
            let Some(ext4) = &mut self.ext4 else { return };
            if !ext4.running.contains(&slot) {
                ext4.running.push(slot);
            }
            if ext4.commit_at.is_none() {
                ext4.commit_at = Some(cx.now() + COMMIT_AGE_NS);
                self.wake_flusher();
            }
        }
    }

    /// Looks up a block (`__getblk`). Returns its slot if it is in memory then.
    fn getblk(&mut self, cx: &mut Cx, block: u32, contents: Contents) -> Option<u32> {
        let slot = self.ext4.as_ref()?.base + block;
        if entry::frame(self.entries[slot as usize]).is_none() {
            let frame = self.find_or_create_page(cx, slot)?;
            self.create_buffers(cx, frame);
            if contents == Contents::OnDisk {
                self.read_folio(cx, slot, frame);
            }
        }
        self.access(slot);
        Some(slot)
    }

    /// Adds a page to one of the mappings. Without free memory above the min mark there is none, where the
    /// kernel reclaims.
    fn find_or_create_page(&mut self, cx: &mut Cx, slot: u32) -> Option<u32> {
        // These are the kernel's pages, not the caller's.
        let mine = cx.pages;
        let ac = self.alloc_context(cx, None, false);
        let frame = self.alloc_page_light(cx, &ac);
        if let Some(frame) = frame {
            self.add_to_page_cache(cx, frame, slot, false);
            self.ext4.as_mut()?.taken += 1;
        }
        cx.pages = mine;
        frame
    }

    /// Notes an access to a page (`touch_buffer`, FGP_ACCESSED).
    fn access(&mut self, slot: u32) {
        if let Some(frame) = entry::frame(self.entries[slot as usize]) {
            self.generation.policy.touch(self, frame);
        }
    }

    /// When the running transaction is to be committed.
    pub(super) fn commit_at(&self) -> Option<u64> {
        self.ext4.as_ref()?.commit_at
    }

    /// Commits the running transaction if it is old enough (`kjournald2`, which the flusher is here).
    pub(super) fn commit_if_due(&mut self, cx: &mut Cx) {
        if self.commit_at().is_some_and(|at| at <= cx.now()) {
            self.commit(cx);
        }
    }

    /// Commits the running transaction if a file has got blocks in it (`ext4_sync_file`). Returns the number
    /// of the last request.
    pub(super) fn commit_for(&mut self, cx: &mut Cx, number: u32) -> Option<u64> {
        let tid = self.ext4.as_ref()?.tid;
        (self.objects[number].datasync_tid == tid).then(|| self.commit(cx))?
    }

    /// Commits the running transaction (`jbd2_journal_commit_transaction`): writes its blocks to the log, a
    /// descriptor before and a record behind them, and leaves them dirty. Descriptor and record are blocks of
    /// the device that stay in memory, the copies in the log are not.
    fn commit(&mut self, cx: &mut Cx) -> Option<u64> {
        let ext4 = self.ext4.as_mut()?;
        let changed = std::mem::take(&mut ext4.running);
        (ext4.tid, ext4.commit_at) = (ext4.tid + 1, None);
        let count = changed.len() as u32;
        if ext4.log + count + 2 > BITMAPS {
            ext4.log = FIRST_IN_LOG;
        }
        let (descriptor, record) = (ext4.log, ext4.log + count + 1);
        ext4.log = record + 1;
        let base = ext4.base;
        for slot in changed {
            if let Some(frame) = entry::frame(self.entries[slot as usize]) {
                self.set_page_dirty(cx, frame);
            }
        }
        let mut last = None;
        for (first, blocks) in [(descriptor, count + 1), (record, 1)] {
            self.getblk(cx, first, Contents::New);
            let place = (Device::Disk, u64::from(base + first));
            last = Some(self.submit_write(cx, place, blocks, Vec::new(), true, Writer::Sync));
        }
        last
    }

    /// Checks that the blocks of the running transaction are in memory, each once, and that there are no more
    /// pages than were taken.
    pub(super) fn check_ext4(&self) -> Result<(), String> {
        let Some(ext4) = &self.ext4 else { return Ok(()) };
        if ext4.commit_at.is_some() == ext4.running.is_empty() {
            return Err(format!("{} blocks are to be committed {:?}", ext4.running.len(), ext4.commit_at));
        }
        let Object { base, pages, .. } = &self.objects[ext4.buddies];
        let buddies = self.entries[*base as usize..(base + pages) as usize].iter();
        let there = self.buffers() + buddies.filter(|&&e| entry::frame(e).is_some()).count() as u64;
        if there > ext4.taken {
            return Err(format!("{there} pages of metadata are there, {} were taken", ext4.taken));
        }
        for (at, &slot) in ext4.running.iter().enumerate() {
            let inside =
                slot.wrapping_sub(ext4.base) < ext4.blocks && self.objects.owner(slot) == ext4.device;
            let once = !ext4.running[..at].contains(&slot);
            if !inside || !once || entry::frame(self.entries[slot as usize]).is_none() {
                return Err(format!("slot {slot} is in the transaction and not in memory, or twice"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
