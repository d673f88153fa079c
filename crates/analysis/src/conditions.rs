//! The part of a machine's memory that no actor can have: [`conditions`].

use lotsfree_kernel_files::counters::{
    Counter, Meminfo, Values, Zoneinfo, meminfo, status, vmstat, zoneinfo,
};
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_run::{Run, RunOn, Sample};
use lotsfree_scenario::{Conditions, MachineSpec, Occupied};
use lotsfree_units::{Bytes, PageSize};
use lotsfree_workload::quantity::Size;

/// What the model of a machine has to be told to begin as a kernel did in `run`, which executed a case for
/// that machine. `has_pool` says that the case itself has a pool of huge pages.
pub fn conditions(run: &Run, machine: &MachineSpec, has_pool: bool) -> Conditions {
    let row = run.facts().measure.window.map_or(0, |window| run.samples().rows(window).start);
    let (first, measured) = (run.samples().get(0), run.samples().get(row));
    let (nodes, cpus) = (&machine.nodes, machine.cpus_per_node().iter().sum());
    let page = PageSize::new(run.facts().page_size).unwrap_or_default();
    let huge = if has_pool { page.pmd_huge() } else { Bytes::ZERO };
    Conditions {
        kernel: first
            .as_ref()
            .zip(measured.as_ref())
            .and_then(|(first, then)| occupied(page, huge, (first, then), nodes)),
        reserved: first.as_ref().and_then(|first| reserved(page, first, nodes)),
        measured_latency: run.facts().machine == RunOn::Vm,
        measured_disk: matches!(run.facts().machine, RunOn::Host | RunOn::Cgroup),
        pagesets: first.as_ref().and_then(|first| pagesets(page, first, nodes.len(), cpus)),
        committed: first.as_ref().and_then(|first| line(first, meminfo::Committed_AS)),
        page_tables: first.as_ref().and_then(others_page_tables),
    }
}

/// Page tables of what is none of the actors: the lab's processes are there before the first sample.
fn others_page_tables(first: &Sample) -> Option<Size> {
    let own = first.processes.iter().filter_map(|process| process.status.get(status::VmPTE)).sum::<u64>();
    Some(Size(Bytes(line(first, meminfo::PageTables)?.bytes().saturating_sub(own << 10))))
}

/// Memory that the zones of a run's kernel manage; `None` if its samples do not show it.
pub fn managed_memory(run: &Run) -> Option<Bytes> {
    let page = PageSize::new(run.facts().page_size).unwrap_or_default();
    let managed =
        run.samples().get(0)?.zones.iter().filter_map(|zone| zone.marks.get(zoneinfo::managed)).sum();
    Some(page.of(managed)).filter(|managed| managed.0 > 0)
}

/// Memory of a node that an actor could obtain, in bytes: free pages, pages in the CPUs' pagesets, pages on
/// the lists of reclaim, and a pool of pages of `huge` bytes, which `vm.nr_hugepages` takes again. `meminfo`
/// is that of the node, `page` the size of the machine's pages.
pub fn to_be_had(page: PageSize, huge: Bytes, zones: &[Zone], id: u32, meminfo: &Values<Meminfo>) -> u64 {
    let pagesets = zones.iter().filter(|zone| zone.node == id).flat_map(|zone| &zone.pagesets);
    let held = page.of(pagesets.map(|set| set.count).sum()).0;
    let files = on_lists(meminfo, [meminfo::Active_file, meminfo::Inactive_file]);
    let pool = meminfo.get(meminfo::HugePages_Total).unwrap_or(0) * huge.0;
    marked(page, zones, id, zoneinfo::free) + held + files + anonymous(meminfo) + pool
}

/// What the zones of a node have of a mark together, in bytes; 0 if they do not show it.
pub fn marked(page: PageSize, zones: &[Zone], id: u32, mark: Counter<Zoneinfo>) -> u64 {
    let its = zones.iter().filter(|zone| zone.node == id);
    page.of(its.filter_map(|zone| zone.marks.get(mark)).sum()).0
}

/// Anonymous pages on the lists of a node, in bytes.
fn anonymous(meminfo: &Values<Meminfo>) -> u64 {
    on_lists(meminfo, [meminfo::Active_anon, meminfo::Inactive_anon])
}

/// Locked pages of a node, in bytes.
fn locked(meminfo: &Values<Meminfo>) -> u64 {
    meminfo.get(meminfo::Mlocked).unwrap_or(0) * 1024
}

/// Pages on two lists of a node, in bytes.
fn on_lists(meminfo: &Values<Meminfo>, lists: [Counter<Meminfo>; 2]) -> u64 {
    lists.iter().filter_map(|list| meminfo.get(*list)).sum::<u64>() * 1024
}

/// Counters of a node; `None` if the sample does not show it.
fn of_node(sample: &Sample, id: u32) -> Option<&Values<Meminfo>> {
    Some(&sample.nodes.iter().find(|node| node.id == id)?.meminfo)
}

/// Memory of a node that its zones manage, in bytes. `None` if the sample does not show it.
fn managed(page: PageSize, sample: &Sample, id: u32) -> Option<u64> {
    Some(marked(page, &sample.zones, id, zoneinfo::managed)).filter(|managed| *managed > 0)
}

/// Sizes of the nodes, each less the `part` of that node.
fn without(nodes: &[Size], part: impl Fn(u32) -> Option<u64>) -> Option<Occupied> {
    let of = |(id, size): (u32, &Size)| Some(Size(Bytes(size.bytes().saturating_sub(part(id)?))));
    (0..).zip(nodes).map(of).collect::<Option<_>>().map(Occupied::PerNode)
}

/// The memory on each node that something other than the scenario uses: a scenario's `machine.kernel`. It is
/// the memory that is neither free nor on the lists of reclaim when measuring begins, which is the kernel's
/// memory and what others have locked, with the page tables and slabs for what the actors have by then. The
/// anonymous pages that were there before any actor started are added. What zram or zswap holds is the
/// actors', who have swapped it out, and so is what was locked since then. `None` if the samples do not show
/// the nodes.
fn occupied(
    page: PageSize,
    huge: Bytes,
    (first, measured): (&Sample, &Sample),
    nodes: &[Size],
) -> Option<Occupied> {
    without(nodes, |id| {
        let obtainable = to_be_had(page, huge, &measured.zones, id, of_node(measured, id)?);
        let compressed =
            zspages(page, measured, id, nodes.len()).saturating_sub(zspages(page, first, id, nodes.len()));
        let locked = locked(of_node(measured, id)?).saturating_sub(locked(of_node(first, id)?));
        (obtainable + compressed + locked).checked_sub(anonymous(of_node(first, id)?))
    })
}

/// Memory of a node that holds compressed pages, in bytes. Where the zones do not show it, all of it on a
/// machine of one node, as is what zswap has from zbud, which `Zswap` alone shows.
fn zspages(page: PageSize, sample: &Sample, id: u32, nodes: usize) -> u64 {
    let zones = sample.zones.iter().filter(|zone| zone.node == id);
    let shown: Vec<u64> = zones.filter_map(|zone| zone.stats.get(vmstat::nr_zspages)).collect();
    let all = || sample.vmstat.get(vmstat::nr_zspages).filter(|_| nodes == 1).unwrap_or(0);
    let zspages = page.of(if shown.is_empty() { all() } else { shown.iter().sum() }).0;
    let zswap = sample.meminfo.get(meminfo::Zswap).filter(|_| nodes == 1).unwrap_or(0);
    zspages.max(Bytes::kib(zswap).0)
}

/// A line of `/proc/meminfo` in KiB: what is promised and what page tables take, a scenario's
/// `machine.committed` and `machine.page-tables`. `None` if the sample does not show it.
fn line(sample: &Sample, of: Counter<Meminfo>) -> Option<Size> {
    sample.meminfo.get(of).map(|kib| Size(Bytes::kib(kib)))
}

/// The memory of each node that its zones do not manage: a scenario's `machine.reserved`. `None` if the
/// sample does not show the nodes.
fn reserved(page: PageSize, sample: &Sample, nodes: &[Size]) -> Option<Occupied> {
    without(nodes, |id| managed(page, sample, id))
}

/// Free memory of each node in the pageset of each CPU: a scenario's `machine.pagesets`. `None` if the sample
/// does not show pagesets of the nodes.
fn pagesets(page: PageSize, sample: &Sample, nodes: usize, cpus: u32) -> Option<Vec<Vec<Size>>> {
    let of = |node: u32, cpu: u32| {
        let zones = sample.zones.iter().filter(|zone| zone.node == node);
        let sets = zones.flat_map(|zone| &zone.pagesets).filter(|set| set.cpu == cpu);
        Size(page.of(sets.map(|set| set.count).sum()))
    };
    let shown = |node: u32| sample.zones.iter().any(|zone| zone.node == node && !zone.pagesets.is_empty());
    (0u32..)
        .take(nodes)
        .map(|node| shown(node).then(|| (0..cpus).map(|cpu| of(node, cpu)).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lotsfree_run::ProcessSample;
    use lotsfree_watch::Sampler;

    #[test]
    fn a_host_has_a_kernel() {
        let sample = Sampler::new(&[0], None).unwrap().sample(0).unwrap();
        let total = Size(Bytes::kib(sample.meminfo.get(meminfo::MemTotal).unwrap()));
        let Some(Occupied::PerNode(kernel)) =
            occupied(PageSize::X86, Bytes::ZERO, (&sample, &sample), &[total])
        else {
            panic!("{sample:?}")
        };
        let [kernel] = kernel.as_slice() else { panic!("{kernel:?}") };
        assert!(*kernel > Size(Bytes::mib(1)) && *kernel < total, "{kernel} of {total}");
        // On most hosts, MemTotal is the memory that the zones manage. On one whose kernel initialises its
        // page structs late, the zones managed 1.36 GiB less (6.18, 24 GiB).
        let unmanaged = total.bytes() - managed(PageSize::X86, &sample, 0).unwrap();
        assert_eq!(
            reserved(PageSize::X86, &sample, &[total]),
            Some(Occupied::PerNode(vec![Size(Bytes(unmanaged))]))
        );
        let held = pagesets(PageSize::X86, &sample, 1, 2).unwrap();
        assert!(held.len() == 1 && held[0].len() == 2, "{held:?}");
        assert_eq!(pagesets(PageSize::X86, &sample, 2, 2), None);
        assert_eq!(occupied(PageSize::X86, Bytes::ZERO, (&sample, &sample), &[total, total]), None);
        assert_eq!(reserved(PageSize::X86, &sample, &[total, total]), None);
    }

    #[test]
    fn what_actors_have_is_theirs_and_their_page_tables_are_the_kernel_s() {
        let first = Sampler::new(&[0], None).unwrap().sample(0).unwrap();
        let total = [Size(Bytes::kib(first.meminfo.get(meminfo::MemTotal).unwrap()))];
        let of = |measured: &Sample| match occupied(PageSize::X86, Bytes::ZERO, (&first, measured), &total) {
            Some(Occupied::PerNode(kernel)) => kernel[0].bytes(),
            other => panic!("{other:?}"),
        };
        // Pages of some heap, and of its page tables.
        let (heap, tables) = (256, 3);
        let mut measured = first.clone();
        let zone = measured.zones.iter_mut().max_by_key(|zone| zone.marks.get(zoneinfo::free)).unwrap();
        zone.marks.set(zoneinfo::free, zone.marks.get(zoneinfo::free).unwrap() - heap - tables);
        let node = &mut measured.nodes[0].meminfo;
        node.set(meminfo::Inactive_anon, node.get(meminfo::Inactive_anon).unwrap() + heap * 4);
        assert_eq!(of(&measured), of(&first) + tables * 4096);
        // Pages of the heap were locked, and are still not the kernel's.
        let mut locking = measured.clone();
        let node = &mut locking.nodes[0].meminfo;
        node.set(meminfo::Inactive_anon, node.get(meminfo::Inactive_anon).unwrap() - 50 * 4);
        node.set(meminfo::Mlocked, node.get(meminfo::Mlocked).unwrap_or(0) + 50 * 4);
        assert_eq!(of(&locking), of(&measured));
        // Pages of the heap were compressed, and are still not the kernel's.
        let node = &mut measured.nodes[0].meminfo;
        node.set(meminfo::Inactive_anon, node.get(meminfo::Inactive_anon).unwrap() - 40 * 4);
        measured.zones.iter_mut().for_each(|zone| zone.stats = Values::default());
        measured.vmstat.set(vmstat::nr_zspages, first.vmstat.get(vmstat::nr_zspages).unwrap_or(0) + 40);
        let mut first = first.clone();
        first.zones.iter_mut().for_each(|zone| zone.stats = Values::default());
        let kernel = occupied(PageSize::X86, Bytes::ZERO, (&first, &measured), &total);
        assert_eq!(kernel, Some(Occupied::PerNode(vec![Size(Bytes(of(&first) + tables * 4096))])));
    }

    #[test]
    fn page_tables_of_the_actors_are_none_of_the_others() {
        let mut first = Sample { meminfo: Values::default(), ..Sample::default() };
        assert_eq!(others_page_tables(&first), None, "a sample that does not tell");
        first.meminfo.set(meminfo::PageTables, 7000);
        assert_eq!(others_page_tables(&first), Some(Size::kib(7000)));
        for tables in [300, 2100] {
            let mut process = ProcessSample::default();
            process.status.set(status::VmPTE, tables);
            first.processes.push(process);
        }
        assert_eq!(others_page_tables(&first), Some(Size::kib(4600)));
    }
}
