use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::cgroup::CgroupVersion;
use lotsfree_units::Grouped;

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity, Skip};

rule! {
    /// Many removed cgroups still exist in the kernel because memory is charged to them.
    ///
    /// # Sees
    /// `nr_dying_descendants` in `cgroup.stat` of the root (version 2, kernel 4.14 or later) above 1,000, and
    /// whether it grows.
    ///
    /// # Hurts
    /// A group that was removed lives on as long as a page of cache, a dentry or a tmpfs page is charged to
    /// it. Each keeps per-CPU counters and list heads (hundreds of kilobytes on large hosts), and reclaim and
    /// `memory.stat` of every ancestor walk all of them: reads of statistics take milliseconds, then seconds.
    ///
    /// # Remedies
    /// Reclaim what pins them (`memory.reclaim` of the parent, 5.19 and later), and stop making groups by the
    /// thousand: short timers, health checks that start a container, session scopes.
    ///
    /// # False alarms
    /// A burst that shrinks between the samples goes away by itself. Version 1 does not show the figure.
    ///
    /// # References
    /// kernel/cgroup/cgroup.c:cgroup_stat_show; mm/memcontrol.c:mem_cgroup_css_offline (6.12);
    /// `Documentation/admin-guide/ cgroup-v2.rst`, nr_dying_descendants; systemd-oomd and bcc pull request
    /// 5201 for the figure.
    pub DyingCgroups = "dying-cgroups" in Cgroup
}

/// Where oomd and bcc's tool call it a leak.
const MANY: u64 = 1000;
/// Ten times as many cost noticeable time in each reclaim of the whole host.
const VERY_MANY: u64 = 10_000;

impl Rule for DyingCgroups {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        if cgroups.version == CgroupVersion::V1 {
            return Err(Skip::because("cgroup version 1 does not count removed groups"));
        }
        let dying =
            cgroups.dying.ok_or_else(|| Skip::missing("/sys/fs/cgroup/cgroup.stat nr_dying_descendants"))?;
        if dying <= MANY {
            return Ok(Vec::new());
        }
        let earlier = cx.before().ok().and_then(|before| before.cgroups.as_ref()?.dying);
        if earlier.is_some_and(|earlier| dying < earlier) {
            return Ok(Vec::new());
        }
        let growth =
            earlier.zip(cx.seconds().ok()).and_then(|(first, s)| Rate::of(&[(0.0, first), (s, dying)]));
        let growing = growth.filter(|rate| rate.total > 0);
        let severity = if dying >= VERY_MANY { Severity::High } else { Severity::Warning };
        let trend = match growing {
            Some(rate) => format!(", {:.1} more every second", rate.per_second),
            None => String::new(),
        };
        let percpu = cx.mem(m::Percpu);
        let cost = match &percpu {
            Ok(percpu) => format!(
                "their per-CPU data are a part of {percpu} (Percpu), and every reclaim of the host walks all of them"
            ),
            Err(_) => {
                "every reclaim of the host and every reading of an ancestor's statistics walks all of them"
                    .to_owned()
            }
        };
        let mut evidence =
            Evidence::new("/sys/fs/cgroup/cgroup.stat", "nr_dying_descendants", Grouped(dying))
                .of("/")
                .against(format!("at most {}", Grouped(MANY)), "oomd, bcc pull request 5201");
        if let Some(earlier) = earlier {
            evidence = evidence.was(Grouped(earlier));
        }
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!(
                "{} removed cgroups are still held by memory that is charged to them{trend}",
                Grouped(dying)
            ),
            Cost::risk(cost),
        );
        finding
            .sure(if growing.is_some() { Confidence::Likely } else { Confidence::Possible })
            .because(evidence);
        finding.because_if(percpu.is_ok().then(|| cx.saw_mem(m::Percpu)));
        add_remedies(&mut finding);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding) {
    finding
        .remedy(
            Remedy::new("Reclaim the page cache that pins them, bit by bit, from the slice that made them")
                .run("echo 1G > /sys/fs/cgroup/system.slice/memory.reclaim")
                .risk(
                    "Reclaims from live groups of the slice as well (kernel 5.19 or later): their cache is \
                     read again. Repeat while the figure falls; stop when it does not.",
                ),
        )
        .remedy(
            Remedy::new("Find what makes short-lived groups and run it in one group that stays")
                .run("systemd-cgtop -b -n 1 -m")
                .run("systemctl list-timers --all")
                .risk("An administrator's change; nothing is lost."),
        )
        .note(
            "What pins a group is charged to whoever touched it first: a job that reads shared files or \
             writes to a tmpfs leaves its group behind for as long as others use them.",
        );
}
