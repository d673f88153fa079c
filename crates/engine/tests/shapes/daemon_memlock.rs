//! Runs daemon-memlock.toml at an eighth of its size: whose pool lies idle is a matter of the limit alone.

use lotsfree_kernel_files::counters::meminfo as m;

use crate::{case, simulated};

const TEXT: &str = include_str!("../../../../scenarios/daemon-memlock.toml");

/// Pages of the pool that nobody has, and KiB of page tables, at the end of a variant.
fn at_end(variant: &str, memlock: Option<&str>) -> (u64, u64) {
    let mut set = vec![
        ("machine.nodes", r#"["3 GiB"]"#),
        ("vm.nr_hugepages", "513"),
        ("actor.oracle.segment", "1 GiB"),
    ];
    set.extend(memlock.map(|limit| ("actor.oracle.limits.memlock", limit)));
    let run = simulated(&case(TEXT, variant, &set));
    let last = run.samples().get(run.samples().len() - 1).expect("a sample").meminfo;
    let value = |line| last.get(line).expect("a line");
    (value(m::HugePages_Free) - value(m::HugePages_Rsvd), value(m::PageTables))
}

#[test]
fn a_pool_lies_idle_where_the_limit_of_who_starts_the_instance_shuts_it_out() {
    // 64 KiB, an eighth of 4 GiB and of 12,582,912 KiB.
    let started = [("daemon", None), ("cluster software", Some("512 MiB"))];
    let [daemon, cluster] = started.map(|(variant, memlock)| at_end(variant, memlock));
    let login = at_end("login", Some("1536 MiB"));
    assert_eq!([daemon.0, cluster.0, login.0], [513, 513, 1]);
    // 121 processes have tables of 1 MiB each for half of the segment.
    assert!(daemon.1 - login.1 > 100 << 10, "{} and {} KiB of page tables", daemon.1, login.1);
    assert_eq!(daemon.1, cluster.1);
    assert_eq!(at_end("login, 6.1", Some("1536 MiB")).0, 513, "no limit helps there");
    assert_eq!(at_end("CAP_IPC_LOCK, 6.1", None).0, 1);
}
