use lotsfree_formulas::vendors::max_map_count;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_settings::MAX_MAP_COUNT;
use lotsfree_units::{Grouped, Percent};

use crate::finding::subject;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// A process is near the limit on mappings, or the limit is below what its vendor asks for.
    ///
    /// # Sees
    /// Lines of `/proc/PID/maps` of the largest processes against `vm.max_map_count`; and that limit against
    /// the floors of the programs that run: Elasticsearch and OpenSearch 262,144 (1,048,576 recommended),
    /// Cassandra 1,048,575, SQL Server 1,600,000, SAP 2,147,483,647.
    ///
    /// # Hurts
    /// At the limit `mmap`, `mprotect` and `munmap` of a part fail with ENOMEM, with any amount of memory
    /// free. Few programs survive that: a Java virtual machine aborts.
    ///
    /// # Remedies
    /// A higher `vm.max_map_count`: the vendor's value, or twice the mappings that are seen.
    ///
    /// # False alarms
    /// The kernel's default of 65,530 is enough for most programs: without a program that asks for more and
    /// without a process near it, nothing is reported.
    ///
    /// # References
    /// `mm/mmap.c` and `Documentation/admin-guide/sysctl/vm.rst`, max_map_count (6.12); Elasticsearch guide,
    /// "Virtual memory"; the checks of SAP and the tuned profile `mssql`.
    pub MapCount = "map-count" in Swap
}

const NAME: &str = MAX_MAP_COUNT;
/// The next burst of mappings may reach the limit.
const NEAR: f64 = 0.80;
/// It is as good as there.
const AT: f64 = 0.95;
/// `INT_MAX`, which SAP asks for.
const SAP: u64 = 2_147_483_647;

/// A vendor's floor.
struct Floor {
    vendor: &'static str,
    least: u64,
    recommended: u64,
}

impl Rule for MapCount {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let limit = cx.sysctl(NAME)?;
        let processes = cx.processes()?;
        let floor = floors(cx, processes).into_iter().max_by_key(|floor| floor.least);
        let maps = |p: &Process| p.detail.as_ref().and_then(|detail| detail.maps);
        let most = processes.iter().filter_map(|p| Some((p, maps(p)?))).max_by_key(|(_, maps)| *maps);
        let share = |maps: u64| maps as f64 / limit.max(1) as f64;
        let near = most.filter(|(_, maps)| share(*maps) > NEAR);
        let below = floor.as_ref().filter(|floor| limit < floor.least);
        let (severity, title) = match (near, below) {
            (Some((process, maps)), _) => (
                if share(maps) > AT { Severity::High } else { Severity::Warning },
                format!(
                    "{} has {} mappings of {} allowed ({})",
                    subject(process),
                    Grouped(maps),
                    Grouped(limit),
                    Percent(share(maps))
                ),
            ),
            (None, Some(floor)) => (
                Severity::Warning,
                format!(
                    "{} asks for at least {} mappings, {} are allowed",
                    floor.vendor,
                    Grouped(floor.least),
                    Grouped(limit)
                ),
            ),
            (None, None) => return Ok(Vec::new()),
        };
        let doubled = near.map_or(0, |(_, maps)| max_map_count(maps));
        let wanted = floor.as_ref().map_or(0, |floor| floor.recommended).max(doubled).min(SAP);
        let bound = match below {
            Some(floor) => (format!("at least {}", Grouped(floor.least)), floor.vendor.to_owned()),
            None => (format!("at least {}", Grouped(doubled)), "twice the mappings seen".to_owned()),
        };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            title,
            Cost::risk(
                "mmap fails with ENOMEM at the limit, with any amount of memory free; most programs abort",
            ),
        );
        finding.sure(Confidence::Certain).because(cx.saw_sysctl(NAME).against(bound.0, bound.1));
        if let Some((process, maps)) = most {
            finding.because(
                Evidence::new("/proc/PID/maps", "lines", Grouped(maps)).of(subject(process)).against(
                    format!("at most {} of {}", Percent(NEAR), Grouped(limit)),
                    "room for the next burst",
                ),
            );
        }
        if wanted > limit {
            finding.remedy(Remedy::new("Allow more mappings").sysctl(cx, NAME, wanted).risk(
                "The limit itself costs nothing; each mapping in use takes some 200 bytes of kernel memory.",
            ));
        } else {
            finding.note("The limit is at the most that it can be: the program has to map in larger pieces.");
        }
        Ok(vec![finding])
    }
}

fn floors(cx: &Context<'_>, processes: &[Process]) -> Vec<Floor> {
    let floor = |vendor, least, recommended| Floor { vendor, least, recommended };
    let in_unit = |name: &str| {
        processes.iter().any(|p| {
            let group = p.detail.as_ref().and_then(|detail| detail.cgroup.as_deref());
            group.is_some_and(|path| {
                path.split('/').any(|part| part.starts_with(name) && part.ends_with(".service"))
            })
        })
    };
    let mut floors = Vec::new();
    if cx.runs(Workload::Sap) || cx.runs(Workload::Hana) {
        floors.push(floor("SAP", SAP, SAP));
    }
    if cx.runs(Workload::Mssql) {
        floors.push(floor("SQL Server", 1_600_000, 1_600_000));
    }
    if in_unit("cassandra") {
        floors.push(floor("Cassandra", 1_048_575, 1_048_575));
    }
    if in_unit("elasticsearch") {
        floors.push(floor("Elasticsearch", 262_144, 1_048_576));
    }
    if in_unit("opensearch") {
        floors.push(floor("OpenSearch", 262_144, 1_048_576));
    }
    floors
}
