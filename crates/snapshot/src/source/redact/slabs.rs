//! `/proc/slabinfo`: names of caches. Modules add their own, and so did control groups before 5.9.

use super::lists::{SLABINFO, SLABS};
use super::names::Names;
use super::words::{is_decimal, keep_words};

impl Names {
    /// Redacts a line: a name, five numbers, and after colons the tunables and the slabs.
    pub(super) fn slab_line(&mut self, line: &str) -> String {
        if line.starts_with('#') || line.starts_with("slabinfo - version") {
            return keep_words(line, &[&SLABINFO], self);
        }
        // A name may contain spaces; the five numbers before the first colon do not.
        let head = line.split(" : ").next().unwrap_or(line);
        let mut end = head.trim_end().len();
        for _ in 0..5 {
            let before = head[..end].trim_end_matches(|c: char| c.is_ascii_digit());
            end = before.trim_end().len();
        }
        let (name, rest) = line.split_at(end);
        let kept = self.slab(name);
        format!("{kept}{}", keep_words(rest, &[&SLABINFO], self))
    }

    /// Redacts a cache's name. A suffix that says that it holds inodes stays, because the kernel can free
    /// those.
    pub(super) fn slab(&mut self, name: &str) -> String {
        if SLABS.has(name) || name.is_empty() {
            return name.to_owned();
        }
        // `kmalloc-64(123:acme.service)`, and `size-64(DMA)` of SLAB.
        if let Some((cache, group)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) {
            let cache = self.slab(cache);
            return match group.split_once(':') {
                Some((id, group)) if is_decimal(id) => format!("{cache}({id}:{})", self.group(group)),
                _ => cache,
            };
        }
        let kind = ["_inode_cache", "_inode"].into_iter().find(|kind| name.ends_with(kind)).unwrap_or("");
        format!("{}{kind}", self.token("slab", name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_modules_and_groups_are_replaced() {
        let mut names = Names::default();
        let rest = "  26     26    152   26    1 : tunables    0    0    0 : slabdata      1      1      0";
        for (name, kept) in [
            ("dentry", "dentry"),
            ("kmalloc-rnd-03-8k", "kmalloc-rnd-03-8k"),
            ("acme_cache", "slab1"),
            ("acme inode", "slab2"),
            ("acme_inode_cache", "slab3_inode_cache"),
            ("kmalloc-64(123:acme.service)", "kmalloc-64(123:unit1.service)"),
            ("dentry(7:acme)", "dentry(7:unit1)"),
        ] {
            assert_eq!(names.slab_line(&format!("{name}{rest}")), format!("{kept}{rest}"));
        }
        let head = "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>";
        assert_eq!(names.slab_line(head), head);
        assert_eq!(names.slab_line("slabinfo - version: 2.1"), "slabinfo - version: 2.1");
    }
}
