//! Every error of a scenario file, word for word: where it is, what is wrong and what would be accepted.

use lotsfree_scenario::Scenario;

const GOOD: &str = r#"title = "t"
duration = "60 s"
[machine]
generation = "linux-6.1"
cpus = 4
nodes = ["1 GiB", "1 GiB"]
disk = { size = "10 GiB" }
[tuning]
"vm.swappiness" = 60
[[file]]
name = "data"
size = "1 GiB"
[[actor]]
name = "server"
kind = "app-server"
heap = "512 MiB"
[[actor]]
name = "copy"
kind = "file-writer"
size = "1 GiB"
[[variant]]
name = "off"
"vm.swappiness" = 0
[measure]
actor = "server"
window = ["10 s", "end"]
"#;

/// What is said about the scenario with a line replaced; the lines of the answer.
fn said(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    match Scenario::parse(&GOOD.replacen(from, to, 1), "s.toml") {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn the_scenario_that_is_spoiled_here_is_sound() {
    assert_eq!(said("cpus = 4", "cpus = 4"), "");
}

#[test]
fn each_says_where_what_and_what_would_be_accepted() {
    let generations = "\"linux-2.6.32-rhel6.4\", \"linux-2.6.32-rhel6\", \"linux-3.0\", \
                       \"linux-3.0-sles11sp2\", \"linux-3.0-sles11sp3\", \"linux-3.10\", \
                       \"linux-3.10.108\", \"linux-3.11\", \"linux-4.4\", \"linux-4.18-rhel8\", \
                       \"linux-5.4\", \"linux-5.10\", \"linux-5.15\", \"linux-6.1\", \"linux-6.1+mglru\", \
                       \"linux-6.8\", \"linux-6.8+mglru\", \"linux-6.12\", \"linux-6.12+mglru\", \
                       \"linux-6.18\", \"linux-6.18+mglru\"";
    let sizes = "write a number with B, KiB, MiB, GiB or TiB in quotes, such as \"10 MiB\"";
    let times = "write a number with ns, us, ms, s, min, h or d in quotes, such as \"200 ms\"";
    let kinds = "\"app-server\", \"file-writer\", \"file-reader\", \"segment-store\", \"sessions\", \"page-toucher\", \
                 \"allocator\", \"pool\", \"trace\", \"exec\"";
    let policies = "write \"local\", \"preferred 0\", \"bind 0,1\", \"interleave\" or \"interleave 0,1\"";
    let keys = "write machine.KEY, actor.NAME.KEY, file.NAME.KEY, calibration.COST, generation or a setting such as \
                vm.swappiness";
    let cases: Vec<(&str, &str, String)> = vec![
        // The text.
        ("title = \"t\"", "title = \"t", "1:11: not TOML: invalid basic string, expected `\"`".to_owned()),
        ("title = \"t\"", "title = 1979-05-27", "1:9: title: a scenario has no dates; write times such as \"60 s\"".to_owned()),
        ("title = \"t\"", "title = \" \"", "1:9: title: empty; write what the scenario shows".to_owned()),
        ("title = \"t\"", "titel = \"t\"", "1:1: titel: unknown key; did you mean \"title\"?\n\
            s.toml:1:1: title: missing; it has no default".to_owned()),
        ("title = \"t\"", "title = 7", "1:9: title: 7 is a number; write a text in quotes".to_owned()),
        ("title = \"t\"", "title = \"t\"\nseed = -1", "2:8: seed: -1 is out of range; write a whole number from 0 on".to_owned()),
        ("title = \"t\"", "title = \"t\"\nseed = 9223372036854775808",
            "2:8: seed: \"9223372036854775808\" is too large; write a number of at most 63 bits".to_owned()),
        ("title = \"t\"", "title = \"t\"\nseed = inf", "2:8: seed: \"inf\" is not a finite number".to_owned()),
        // Times.
        ("\"60 s\"", "\"0 s\"", "2:12: duration: it is 0; write more than 0 and at most 30 d".to_owned()),
        ("\"60 s\"", "\"31 d\"", "2:12: duration: it is 31 d; write more than 0 and at most 30 d".to_owned()),
        ("\"60 s\"", "60", format!("2:12: duration: 60 is a number; {times}")),
        ("\"60 s\"", "\"60 fortnights\"",
            format!("2:12: duration: \"60 fortnights\" is not a time: \"fortnights\" is not a unit; {times}")),
        ("\"60 s\"", "\"60 s\"\ninterval = \"2 min\"",
            "3:12: interval: it is 2 min; write more than 0 and at most the duration, 1 min".to_owned()),
        ("\"60 s\"", "\"60 s\"\ninterval = \"1 us\"",
            "3:12: interval: a sample every 1 us for 1 min is 60000000 samples; write an interval that gives at most 10000000"
                .to_owned()),
        ("\"60 s\"", "\"60 s\"\nbase = \"../x\"",
            "3:8: base: \"../x\" is not a name; write 1 to 60 characters without '/' and control characters, not beginning \
             with '.'".to_owned()),
        // The machine.
        ("\"linux-6.1\"", "\"linux-6.2\"",
            format!("4:14: machine.generation: \"linux-6.2\" is not known; \"linux-6.1\" is the newest before it, and may well answer otherwise. Accepted: {generations}")),
        ("\"linux-6.1\"", "\"windows\"",
            format!("4:14: machine.generation: \"windows\" is not known; accepted: {generations}")),
        ("cpus = 4", "cpu = 4", "3:1: machine.cpus: missing; it has no default\n\
            s.toml:5:1: machine.cpu: unknown key; did you mean \"cpus\"?".to_owned()),
        ("cpus = 4", "cpus = 4\ncolour = 1",
            "6:1: machine.colour: unknown key; known here: generation, cpus, page-size, nodes, distance, kernel, reserved, committed, page-tables, pagesets, disk, swap".to_owned()),
        ("cpus = 4", "cpus = 0", "5:8: machine.cpus: 0 CPUs; write 1 to 4096".to_owned()),
        ("cpus = 4", "cpus = 5000", "5:8: machine.cpus: 5000 CPUs; write 1 to 4096".to_owned()),
        ("cpus = 4", "cpus = [4]",
            "5:8: machine.cpus: a list for 1 nodes, but the machine has 2; write one number per node, or one for all".to_owned()),
        ("cpus = 4", "cpus = 4\npage-size = \"8 KiB\"",
            "6:13: machine.page-size: 8 KiB is not the size of a page; write \"4 KiB\", \"16 KiB\" or \"64 KiB\"".to_owned()),
        ("linux-6.1\"\ncpus = 4", "linux-3.10\"\ncpus = 4\npage-size = \"16 KiB\"",
            "6:13: machine.page-size: linux-3.10 has no pages of 16 KiB; write \"4 KiB\", or a later generation".to_owned()),
        ("cpus = 4\nnodes = [\"1 GiB\", \"1 GiB\"]", "cpus = 4\npage-size = \"64 KiB\"\nnodes = [\"1 GiB\", \"65537 KiB\"]",
            "7:19: machine.nodes[1]: node 1 has 65537 KiB, which are no whole pages of 64 KiB".to_owned()),
        ("[\"1 GiB\", \"1 GiB\"]", "[]", "6:9: machine.nodes: 0 nodes; write the memory of 1 to 64 nodes".to_owned()),
        ("[\"1 GiB\", \"1 GiB\"]", "[\"1 GiB\", \"0\"]",
            "6:19: machine.nodes[1]: node 1 has no memory; write at least 64 MiB".to_owned()),
        ("[\"1 GiB\", \"1 GiB\"]", "[\"1 GiB\", \"63 MiB\"]",
            "6:19: machine.nodes[1]: node 1 has 63 MiB; write at least 64 MiB".to_owned()),
        ("[\"1 GiB\", \"1 GiB\"]", "[\"1 GiB\", \"64 TiB\"]",
            "6:9: machine.nodes: 65537 GiB in all; write at most 64 TiB".to_owned()),
        ("[\"1 GiB\", \"1 GiB\"]", "[\"1 GiB\", \"-1 GiB\"]",
            format!("6:19: machine.nodes[1]: \"-1 GiB\" is not a size: it is negative; {sizes}")),
        ("cpus = 4", "cpus = 4\nkernel = \"2 GiB\"",
            "6:10: machine.kernel: the kernel occupies all of the 2 GiB of memory; write less".to_owned()),
        ("cpus = 4", "cpus = 4\npagesets = [[\"4 KiB\"]]",
            "6:12: machine.pagesets: lists for 1 nodes, but the machine has 2".to_owned()),
        ("cpus = 4", "cpus = 4\npagesets = [[\"0\", \"0\", \"0\"], [\"1 GiB\", \"0\", \"0\", \"0\"]]",
            "6:13: machine.pagesets[0]: 3 sizes, but the machine has 4 CPUs; write one for each\n\
            s.toml:6:30: machine.pagesets[1]: CPUs hold 1 GiB of the 1 GiB of node 1; write less".to_owned()),
        ("cpus = 4", "cpus = 4\ndistance = 9", "6:12: machine.distance: 9 is not a distance; write 10 to 254".to_owned()),
        ("cpus = 4", "cpus = 4\ndistance = [[10, 20]]",
            "6:12: machine.distance: not a matrix of 2 rows of 2 numbers, which 2 nodes need".to_owned()),
        ("cpus = 4", "cpus = 4\ndistance = [[10, 5], [20, 11]]",
            "6:12: machine.distance: node 0 is 5 from node 1; write 10 to 254\n\
             s.toml:6:12: machine.distance: node 1 is 11 from itself; write 10".to_owned()),
        ("{ size = \"10 GiB\" }", "{ size = \"0\" }",
            "7:17: machine.disk.size: a disk of size 0; leave it out for one without bound".to_owned()),
        ("{ size = \"10 GiB\" }", "{ bandwidth = \"0\" }",
            "7:22: machine.disk.bandwidth: 0 transfers nothing; write more than 0".to_owned()),
        ("{ size = \"10 GiB\" }", "{ iops = 0 }", "7:17: machine.disk.iops: 0 serves nothing; write 1 or more".to_owned()),
        ("{ size = \"10 GiB\" }", "{ latency = \"1 MiB\" }",
            format!("7:20: machine.disk.latency: \"1 MiB\" is not a time: \"MiB\" is not a unit; {times}")),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"own\", latency = \"1 ms\" }",
            "6:8: machine.swap.bandwidth: missing; a swap device of its own needs it (or write on = \"disk\")".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"3 TiB\", on = \"disk\" }",
            "6:17: machine.swap.size: 3 TiB of swap; write at most 2 TiB\n\
             s.toml:6:17: machine.swap.size: 3 TiB of swap are larger than the disk that holds it".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"disk\", iops = 5 }",
            "6:46: machine.swap.iops: swap on the disk has the disk's; leave it out, or write on = \"own\"".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"zram\", iops = 5 }",
            "6:46: machine.swap.iops: zram is memory, and takes as long as `compress` and `decompress` of [calibration] say; leave it out".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"zram\", ratio = 0.5 }",
            "6:47: machine.swap.ratio: 0.5 is no ratio; write 1 to 100".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"zram\", mem-limit = \"0\" }",
            "6:51: machine.swap.mem-limit: 0 holds nothing; leave it out for a zram without limit".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"disk\", ratio = 3.0 }",
            "6:47: machine.swap.ratio: only zram and zswap compress; leave it out, or write on = \"zram\" or zswap = {}".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { on = \"disk\", mem-limit = \"1 GiB\" }",
            "6:35: machine.swap.mem-limit: only zram has it; leave it out, or write on = \"zram\"".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { on = \"disk\", zswap = {} }",
            "6:31: machine.swap.zswap: zswap is a cache in front of swap, and there is none; write swap.size".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"zram\", zswap = {} }",
            "6:47: machine.swap.zswap: zram compresses already, and zswap in front of it compresses each page twice; leave it out, \
             or write on = \"own\" or \"disk\"".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"disk\", zswap = { max-pool-percent = 0 } }",
            "6:68: machine.swap.zswap.max-pool-percent: 0 %; write 1 to 100".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"disk\", zswap = { zpool = \"z3fold\" } }",
            "6:57: machine.swap.zswap.zpool: \"z3fold\" is not known; accepted: \"zbud\", \"zsmalloc\"".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { size = \"1 GiB\", on = \"disk\", burst = \"100 ms\" }",
            "6:47: machine.swap.burst: swap on the disk has the disk's; leave it out, or write on = \"own\"".to_owned()),
        ("cpus = 4", "cpus = 4\nswap = { on = \"tape\" }",
            "6:15: machine.swap.on: \"tape\" is not known; accepted: \"own\", \"disk\", \"zram\"".to_owned()),
        // Settings.
        ("\"vm.swappiness\" = 60", "\"vm.swapiness\" = 60",
            "9:1: tuning.\"vm.swapiness\": unknown key; did you mean \"vm.swappiness\"?".to_owned()),
        ("\"vm.swappiness\" = 60", "vm.swappiness = 201",
            "9:17: tuning.\"vm.swappiness\": 201 is not accepted by linux-6.1; write a whole number from 0 to 200".to_owned()),
        ("\"vm.swappiness\" = 60", "\"vm.swappiness\" = true",
            "9:19: tuning.\"vm.swappiness\": true is not accepted by linux-6.1; write a whole number from 0 to 200".to_owned()),
        ("\"vm.swappiness\" = 60", "\"vm.extra_free_kbytes\" = 60",
            "9:1: tuning.\"vm.extra_free_kbytes\": linux-6.1 does not have it; linux-2.6.32-rhel6 and older has".to_owned()),
        ("\"vm.swappiness\" = 60", "\"kernel.mm.transparent_hugepage.enabled\" = \"yes\"",
            "9:44: tuning.\"kernel.mm.transparent_hugepage.enabled\": \"yes\" is not accepted by linux-6.1; write \
             \"always\", \"madvise\", \"never\"".to_owned()),
        ("\"vm.swappiness\" = 60", "\"vm.lowmem_reserve_ratio\" = \"256 x\"",
            "9:29: tuning.\"vm.lowmem_reserve_ratio\": \"256 x\" is not accepted by linux-6.1; write up to 5 whole \
             numbers from 0 to 2147483647 in quotes, such as \"256 256 32\"".to_owned()),
        ("\"vm.swappiness\" = 60", "\"vm.dirty_bytes\" = 10000\n\"vm.dirty_ratio\" = 5",
            "9:1: tuning.\"vm.dirty_bytes\": the kernel keeps one of vm.dirty_bytes and vm.dirty_ratio; write one".to_owned()),
        ("\"vm.swappiness\" = 60", "\"vm.swappiness\" = 60\nvm.swappiness = 1",
            "10:4: tuning.\"vm.swappiness\": given twice; write it once".to_owned()),
        ("\"vm.swappiness\" = 60", "\"vm.overcommit_kbytes\" = 1\n\"vm.overcommit_ratio\" = 5",
            "9:1: tuning.\"vm.overcommit_kbytes\": the kernel keeps one of vm.overcommit_kbytes and vm.overcommit_ratio; \
             write one".to_owned()),
        ("\"vm.swappiness\" = 60", "\"vm.overcommit_memory\" = 3",
            "9:26: tuning.\"vm.overcommit_memory\": 3 is not accepted by linux-6.1; write a whole number from 0 to 2".to_owned()),
        // Files.
        ("name = \"data\"", "name = \"da ta\"",
            "11:8: file[0].name: \"da ta\" is not a name; write 1 to 60 letters, digits, '-' and '_'".to_owned()),
        ("size = \"1 GiB\"", "size = \"0\"", "12:8: file.data.size: it is 0; write more than 0 and less than 16 TiB".to_owned()),
        ("size = \"1 GiB\"", "size = \"11 GiB\"",
            "12:8: file.data.size: 11 GiB of files do not fit the disk of 10 GiB; write less, or a larger disk".to_owned()),
        ("[[file]]", "[[file]]\nname = \"data\"\nsize = \"1 MiB\"\n[[file]]",
            "14:8: file.data.name: another file has this name; write another".to_owned()),
        // Actors.
        ("kind = \"app-server\"", "kind = \"app-sever\"",
            format!("15:8: actor.server.kind: \"app-sever\" is not known; did you mean \"app-server\"? Accepted: {kinds}")),
        ("kind = \"app-server\"", "kind = 0", "15:8: actor.server.kind: 0 is a number; write a text in quotes".to_owned()),
        ("kind = \"app-server\"", "", "13:1: actor.server.kind: missing; it has no default".to_owned()),
        ("heap = \"512 MiB\"", "", "13:1: actor.server.heap: missing; it has no default".to_owned()),
        ("kind = \"app-server\"\nheap = \"512 MiB\"", "kind = \"sessions\"\nprocesses = 16385\nsegment = \"1 GiB\"",
            "13:1: actor.server: more than 16384 threads in all; a scenario has at most 16384".to_owned()),
        ("kind = \"app-server\"\nheap = \"512 MiB\"", "kind = \"sessions\"\nprocesses = 5\nsegment = \"1 GiB\"\nbacking = \"huge\"",
            "18:11: actor.server.backing: \"huge\" is not known; accepted: \"shm\", \"shm-huge\", \"shm-huge-or-base\", \"tmpfs\"".to_owned()),
        ("kind = \"app-server\"\nheap = \"512 MiB\"", "kind = \"page-toucher\"\nsize = \"1 GiB\"\nlocked = true",
            "17:10: actor.server.locked: this is true or false; write one of \"no\", \"before\", \"region\"".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\nstrat = \"1 s\"",
            "17:1: actor.server.strat: unknown key; did you mean \"start\"?".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\nlocality = \"zipf\"",
            "17:12: actor.server.locality: \"zipf\" needs a value; write { zipf = … }".to_owned()),
        ("duration = \"60 s\"", "duration = \"60 s\"\n\"vm.swappiness\" = 1",
            "3:1: vm.swappiness: unknown key; settings of the kernel belong below [tuning]".to_owned()),
        ("cpus = 4", "cpus = 4\nvm.swappiness = 1",
            "6:1: machine.vm: unknown key; settings of the kernel belong below [tuning]".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\nlocality = \"unifrom\"",
            "17:12: actor.server.locality: \"unifrom\" is not known; did you mean \"uniform\"? Accepted: \"uniform\", \
             \"zipf\", \"hot-cold\"".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\nthreads = 1000000000",
            "13:1: actor.server: more than 16384 threads in all; a scenario has at most 16384".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\noom-score-adj = -1001",
            "17:17: actor.server.oom-score-adj: is -1001; it may be -1000 to 1000".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\nstart = \"60 s\"",
            "17:9: actor.server.start: it starts at 1 min, when the run of 1 min is over; write less".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\nstart = \"9 s\"\nstop = \"9 s\"",
            "18:8: actor.server.stop: it stops at 9 s, not after its start at 9 s; write more".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\nnode = 2",
            "17:8: actor.server.node: there is no node 2; the machine has nodes 0 to 1".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\npolicy = \"bind 1,2\"",
            "17:10: actor.server.policy: there is no node 2; the machine has nodes 0 to 1".to_owned()),
        ("heap = \"512 MiB\"", "heap = \"512 MiB\"\npolicy = \"bind\"",
            format!("17:10: actor.server.policy: \"bind\" is not a policy; {policies}")),
        ("name = \"copy\"", "name = \"server\"", "18:8: actor.server.name: another actor has this name; write another".to_owned()),
        ("name = \"copy\"", "name = \"a.b\"",
            "18:8: actor[1].name: \"a.b\" is not a name; write 1 to 60 letters, digits, '-' and '_'".to_owned()),
        ("kind = \"file-writer\"\nsize = \"1 GiB\"", "kind = \"file-writer\"\nsize = \"11 GiB\"",
            "20:8: actor.copy.size: 11 GiB of files do not fit the disk of 10 GiB; write less, or a larger disk".to_owned()),
        // Variants.
        ("name = \"off\"", "name = \"base\"",
            "22:8: variant[0].name: \"base\" is already the name of the scenario as it stands (key base); write another"
                .to_owned()),
        ("name = \"off\"", "", "21:1: variant[0].name: missing; a variant has a name".to_owned()),
        ("name = \"off\"", "name = \"off\"\nswapiness = 1",
            format!("23:1: variant.swapiness: not a key that a variant can override; did you mean \"vm.swappiness\"? W{}", &keys[1..])),
        ("name = \"off\"", "name = \"off\"\nactor.copi.how = \"direct\"",
            "23:12: actor.copi.how: the actor \"copi\" is not known; did you mean \"copy\"? Accepted: \"server\", \"copy\" \
             (in variant \"off\")".to_owned()),
        ("name = \"off\"", "name = \"off\"\nmachine.cpus = 0",
            "23:16: machine.cpus: 0 CPUs; write 1 to 4096 (in variant \"off\")".to_owned()),
        ("name = \"off\"", "name = \"off\"\nmachine.cpus.x = 0",
            "23:14: machine.cpus.x: machine.cpus is not a table that could have this key (in variant \"off\")".to_owned()),
        // The sweep.
        ("[measure]", "[sweep]\nkey = \"actor.copy.size\"\nvalues = []\n[measure]",
            "26:10: sweep.values: the list is empty; write one value or more".to_owned()),
        ("[measure]", "[sweep]\nkey = \"actor.copy.size\"\nvalues = [\"1 GiB\", \"20 GiB\"]\n[measure]",
            "26:20: actor.copy.size: 20 GiB of files do not fit the disk of 10 GiB; write less, or a larger disk (at \
             actor.copy.size = 20 GiB)".to_owned()),
        ("[measure]", "[sweep]\nkey = \"actor.copy.size\"\nunit = \"s\"\nvalues = [\"1 GiB\"]\n[measure]",
            "27:11: sweep.values[0]: \"1 GiB\" cannot be given in \"s\"; write another unit".to_owned()),
        // The table of strategies.
        ("[measure]", "[strategies]\ntitle = \"t\"\nfrom = \"cat\"\n[[strategies.row]]\nname = \"n\"\nvariant = \"off\"\n\
                       without = \"base\"\nneeds = \"x\"\nkernels = \"all\"\n[measure]",
            "26:8: strategies.from: \"cat\" is not known; accepted: \"server\", \"copy\"".to_owned()),
        ("[measure]", "[strategies]\ntitle = \"t\"\n[[strategies.row]]\nname = \"n\"\nvariant = \"of\"\nwithout = \"base\"\n\
                       needs = \"x\"\nkernels = \"all\"\n[measure]",
            "28:11: strategies.row[0].variant: \"of\" is not known; did you mean \"off\"? Accepted: \"base\", \"off\""
                .to_owned()),
        ("[measure]", "[sweep]\nkey = \"actor.copy.size\"\nvalues = [\"1 GiB\"]\n[strategies]\ntitle = \"t\"\n\
                       at = \"2 GiB\"\n[[strategies.row]]\nname = \"n\"\nvariant = \"off\"\nwithout = \"base\"\n\
                       needs = \"x\"\nkernels = \"all\"\n[measure]",
            "29:6: strategies.at: \"2 GiB\" is not known; did you mean \"1 GiB\"? Accepted: \"1 GiB\"".to_owned()),
        ("[measure]", "[sweep]\nkey = \"seed\"\nvalues = [1]\n[measure]",
            format!("25:7: sweep.key: \"seed\" is not a key that can be swept; {keys}")),
        ("[measure]", "[sweep]\nkey = \"vm.swappiness\"\nvalues = [1]\n[measure]",
            "23:1: vm.swappiness: the sweep sets this key in every variant, \"off\" too".to_owned()),
        // What is measured.
        ("actor = \"server\"", "actor = \"sever\"",
            "25:9: measure.actor: \"sever\" is not known; did you mean \"server\"? Accepted: \"server\", \"copy\"".to_owned()),
        ("\"end\"]", "\"5 s\"]",
            "26:10: measure.window: from 10 s to 5 s; write two times, the later one second, at most \"end\", which is 1 min"
                .to_owned()),
        ("\"end\"]", "\"ende\"]",
            format!("26:19: measure.window[1]: \"ende\" is not a time: it does not begin with a number; {times}, or \"end\"")),
        // Costs.
        ("[measure]", "[calibration]\nfault = -1\n[measure]",
            "25:9: calibration.fault: a cost is not negative; write a number from 0 on".to_owned()),
        ("[measure]", "[calibration]\nminor-fault = 1\n[measure]",
            "25:1: calibration.minor-fault: unknown key; known here: record, touch, syscall, fault, alloc, zero, copy, write, \
             writeback, scan, skip, lru_lock, rmap, free, submit, wakeup, sleep, slack, compress, decompress, walk".to_owned()),
        ("[measure]", "[calibration]\nrecord = 1\n[measure]",
            "25:10: calibration.record: not the name of a calibration record; write a text in quotes".to_owned()),
    ];
    let mut wrong = Vec::new();
    for (from, to, expected) in &cases {
        let said = said(from, to);
        let expected = format!("s.toml:{expected}");
        if said != expected {
            wrong.push(format!("{to}\n  says     {said}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_override_names_itself() {
    let scenario = Scenario::parse(GOOD, "s.toml").unwrap();
    let keys = "write machine.KEY, actor.NAME.KEY, file.NAME.KEY, calibration.COST, generation or a setting such as \
                vm.swappiness";
    for (key, value, expected) in [
        ("machine.cpus", "0", "--set machine.cpus=0: machine.cpus: 0 CPUs; write 1 to 4096".to_owned()),
        ("vm.swappiness", "300",
            "--set vm.swappiness=300: tuning.\"vm.swappiness\": 300 is not accepted by linux-6.1; write a whole number \
             from 0 to 200".to_owned()),
        ("actor.copi.size", "1 GiB",
            "--set actor.copi.size=1 GiB: actor.copi.size: the actor \"copi\" is not known; did you mean \"copy\"? \
             Accepted: \"server\", \"copy\"".to_owned()),
        ("actor.copy.size", "7",
            "--set actor.copy.size=7: actor.copy.size: \"7\" is not a size: it has no unit; write a number with B, KiB, \
             MiB, GiB or TiB in quotes, such as \"10 MiB\"".to_owned()),
        ("durations", "7 s",
            format!("--set durations=7 s: durations: not a key that can be overridden; did you mean \"duration\"? W{}", &keys[1..])),
    ] {
        assert_eq!(scenario.with(&[(key, value)]).unwrap_err().to_string(), expected);
    }
}

#[test]
fn too_much_is_refused_before_it_is_looked_at() {
    let text = "x".repeat((1 << 20) + 1);
    let error = Scenario::parse(&text, "s.toml").unwrap_err().to_string();
    assert_eq!(
        error,
        "s.toml: the text has 1048577 bytes; a scenario has at most 1048576 (a trace is a file of its own)"
    );
    let values = vec!["1"; 6000].join(",");
    let sweep = format!("[sweep]\nkey = \"machine.cpus\"\nvalues = [{values}]\n[measure]");
    assert_eq!(
        said("[measure]", &sweep),
        "s.toml:24:2: 2 variants (the scenario as it stands is one) at 6000 values of the sweep are 12000 runs; a \
         scenario has at most 10000"
    );
    let actors: String = (0..16_400)
        .map(|n| format!("[[actor]]\nname = \"a{n}\"\nkind = \"file-writer\"\nsize = \"0\"\n"))
        .collect();
    assert_eq!(
        said("[[variant]]", &format!("{actors}[[variant]]")),
        "s.toml:13:3: actor: 16402 actors: more than 16384 threads in all; a scenario has at most 16384"
    );
    let deep = format!("title = {}{}", "[".repeat(500), "]".repeat(500));
    let error = Scenario::parse(&deep, "s.toml").unwrap_err().to_string();
    assert!(error.contains("recurs"), "{error}");
}

#[test]
fn several_are_reported_at_once_in_the_order_of_the_text() {
    let text = GOOD
        .replace("cpus = 4", "cpus = 0")
        .replace("kind = \"app-server\"", "kind = \"app\"")
        .replace("window = [\"10 s\", \"end\"]", "windows = 1");
    let errors = Scenario::parse(&text, "s.toml").unwrap_err();
    let keys: Vec<&str> = errors.iter().map(|error| error.key()).collect();
    assert_eq!(keys, ["machine.cpus", "actor.server.kind", "measure.windows"]);
    assert_eq!(errors.iter().map(|error| error.position().unwrap().0).collect::<Vec<_>>(), [5, 15, 26]);
}

#[test]
fn a_variant_that_does_not_exist_is_refused() {
    let scenario = Scenario::parse(GOOD, "s.toml").unwrap();
    assert_eq!(
        scenario.cases(Some(&["of".to_owned()])).unwrap_err().to_string(),
        "s.toml:21:3: variant: \"of\" is not known; did you mean \"off\"? Accepted: \"base\", \"off\""
    );
}

#[test]
fn what_only_the_built_actors_know_is_refused_at_its_place() {
    let built = |from: &str, to: &str| {
        let scenario = Scenario::parse(&GOOD.replacen(from, to, 1), "s.toml").unwrap();
        scenario.cases(None).unwrap()[0].program().unwrap_err().to_string()
    };
    assert_eq!(
        built("size = \"1 GiB\"", "size = \"9.5 GiB\""),
        "s.toml:7:17: machine.disk.size: the disk has 10 GiB, but the files need 10752 MiB; write more, or make the files \
         smaller"
    );
    assert_eq!(
        built("actor = \"server\"", "actor = \"copy\"\nrole = \"reader\""),
        "s.toml:26:8: measure.role: \"reader\" is not known; accepted: \"writer\""
    );
    let refused = built("heap = \"512 MiB\"", "heap = \"512 MiB\"\nwrite = 2.0");
    assert!(refused.starts_with("s.toml:17:9: actor.server.write: "), "{refused}");
    let scenario = Scenario::parse(GOOD, "s.toml").unwrap();
    let case = &scenario.cases(None).unwrap()[1];
    assert_eq!(case.refuse("vm.swappiness", "no").to_string(), "s.toml:23:19: vm.swappiness: no");
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.toml");
    let said = Scenario::load(&path).unwrap_err().to_string();
    assert!(said.starts_with(&format!("{}: No such file", path.display())), "{said}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    let said = Scenario::load(&path).unwrap_err().to_string();
    assert!(said.contains("not UTF-8 text"), "{said}");
}
