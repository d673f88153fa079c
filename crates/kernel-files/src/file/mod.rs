//! One module per file, each with its type, parser and printer.

pub mod arcstats;
pub mod block;
pub mod buddyinfo;
pub mod cgroup;
pub mod cpu_times;
pub mod hugepages;
pub mod kallsyms;
pub mod kernel_log;
pub mod limits_conf;
pub mod lru_gen;
pub mod mounts;
pub mod node;
pub mod os_release;
pub mod pagetypeinfo;
pub mod pressure;
pub mod process;
mod scan;
pub mod slabinfo;
pub mod swaps;
pub mod sysctl;
pub mod sysv_shm;
pub mod thp;
pub mod trace_format;
#[cfg(test)]
mod trial;
pub mod unit;
pub mod unlinked;
pub mod zoneinfo;
