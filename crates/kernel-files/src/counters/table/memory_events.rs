//! `memory.events` and `memory.events.local` of a version 2 memory cgroup.

counters! {
    /// How often a memory cgroup met its limits; `memory.events` counts descendants too,
    /// `memory.events.local` not.
    family MemoryEvents in memory_events, "memory.events", separator b' ';
    low, count, monotonic, since "4.5", "Times that the group was reclaimed although its usage was below its low protection.", "mm/vmscan.c:shrink_node_memcgs";
    high, count, monotonic, since "4.5", "Times that a charge above memory.high made a task of the group reclaim or wait.", "mm/memcontrol.c:reclaim_high";
    max, count, monotonic, since "4.5", "Times that a charge met memory.max and had to reclaim first.", "mm/memcontrol.c:try_charge_memcg";
    oom, count, monotonic, since "4.5", "Times that reclaim could not make room below memory.max; what follows may be a kill or a failed allocation.", "mm/memcontrol.c:mem_cgroup_oom";
    oom_kill, count, monotonic, since "4.13", "Processes of the group that any OOM killer killed, the host's included.", "mm/oom_kill.c:__oom_kill_process";
    oom_group_kill, count, monotonic, since "5.17", "Times that the whole group was killed because of memory.oom.group.", "mm/oom_kill.c:oom_kill_process";
    sock_throttled, count, monotonic, since "6.19", "Times that network sockets of the group were held back under memory pressure.", "mm/memcontrol.c:__memory_events_show";
}
