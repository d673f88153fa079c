use crate::remedy::word;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// Two programs set kernel parameters at once.
    ///
    /// # Sees
    /// More than one of tuned, sapconf and saptune in use: tuned's active profile (and its daemon, where
    /// processes are known), and the services that are enabled.
    ///
    /// # Hurts
    /// Each sets its own idea of swappiness, dirty limits, huge pages and NUMA balancing when it starts.
    /// Which one wins depends on the order of services at boot and on who was restarted last, so the same
    /// host is tuned differently on different days.
    ///
    /// # Remedies
    /// One of them: saptune for SAP on SLES, tuned elsewhere.
    ///
    /// # False alarms
    /// A profile that is left in `/etc/tuned` without a running tuned sets nothing. On SLES 12, sapconf and
    /// saptune were tuned profiles: tuned with the profile of that name is one tuner.
    ///
    /// # References
    /// saptune(8) and sapconf(5) ("saptune and sapconf must not run at the same time"); tuned-adm(8); SUSE,
    /// "SLES for SAP Applications Guide", tuning.
    pub TwoTuners = "two-tuners" in Host
}

impl Rule for TwoTuners {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let tuners = &cx.now().tuners;
        let any = tuners.tuned_profile.is_some() || tuners.sapconf || tuners.saptune;
        if !any && cx.now().host.distribution.is_none() {
            return Err(Skip::missing("/etc/tuned/active_profile, /etc/systemd/system"));
        }
        let daemon = cx.processes().ok().map(|processes| processes.iter().any(|p| &*p.stat.name == "tuned"));
        let profile = tuners.tuned_profile.as_deref().filter(|_| daemon != Some(false));
        // A tuned profile that carries the other's name is the other.
        let tuned = profile.filter(|profile| {
            !(tuners.sapconf && profile.contains("sapconf") || tuners.saptune && profile.contains("saptune"))
        });
        let mut active = Vec::new();
        let mut evidence = Vec::new();
        if let Some(profile) = tuned {
            active.push(format!("tuned ({profile})"));
            evidence.push(Evidence::new("/etc/tuned/active_profile", "profile", profile));
        }
        for (name, enabled) in [("sapconf", tuners.sapconf), ("saptune", tuners.saptune)] {
            if enabled {
                active.push(name.to_owned());
                let file = format!("/etc/systemd/system/*.wants/{name}.service");
                evidence.push(
                    Evidence::new(file, "unit", "enabled").against("one tuner", "saptune(8), sapconf(5)"),
                );
            }
        }
        if active.len() < 2 {
            return Ok(Vec::new());
        }
        let mut finding = Finding::new(
            Self::ID,
            Severity::Warning,
            format!("{} set kernel parameters on this host at the same time", active.join(" and ")),
            Cost::risk("which value holds depends on which of them started last"),
        );
        finding
            .sure(if daemon == Some(true) || tuned.is_none() {
                Confidence::Certain
            } else {
                Confidence::Likely
            })
            .because_all(evidence);
        add_remedies(&mut finding, cx, tuned);
        finding.note(
            "How to choose: for SAP on SLES saptune, which follows SAP's notes; elsewhere tuned with one \
             profile. Look at the settings again after the other has been stopped.",
        );
        Ok(vec![finding])
    }
}

/// Proposes to stop all but one; `tuned` is the profile that tuned has set.
fn add_remedies(finding: &mut Finding, cx: &Context<'_>, tuned: Option<&str>) {
    let tuners = &cx.now().tuners;
    if let Some(profile) = tuned.filter(|_| tuners.sapconf || tuners.saptune) {
        let stays = if tuners.saptune { "saptune" } else { "sapconf" };
        finding.remedy(
            Remedy::new(format!("Leave it to {stays}: stop tuned"))
                .run("systemctl disable --now tuned")
                .undo_with("systemctl enable --now tuned")
                .undo_with(format!(
                    "tuned-adm profile {}",
                    profile.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
                ))
                .risk("What only tuned's profile set (CPU frequency, disks) goes back to its default."),
        );
    }
    if tuners.sapconf && tuners.saptune {
        finding.remedy(
            Remedy::new("Leave it to saptune: stop sapconf")
                .run("systemctl disable --now sapconf")
                .run("saptune service enablestart")
                .undo_with("systemctl enable --now sapconf")
                .risk(
                    "Values that only sapconf set go back to their defaults: check with saptune note verify.",
                ),
        );
    }
}
