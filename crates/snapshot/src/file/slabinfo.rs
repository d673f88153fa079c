//! `/proc/slabinfo` (version 2.x, root only).

use lotsfree_units::Bytes;
use serde::Serialize;

/// One cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlabCache {
    /// Name, such as `dentry`.
    pub name: Box<str>,
    /// Objects in use.
    pub active_objects: u64,
    /// Objects allocated.
    pub objects: u64,
    /// Bytes per object.
    pub object_size: Bytes,
    /// Objects per slab.
    pub objects_per_slab: u64,
    /// Pages per slab.
    pub pages_per_slab: u64,
    /// Slabs allocated.
    pub slabs: u64,
}
