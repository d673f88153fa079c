//! [`follow`]: from the problem over the remedy, as it is printed, to the application's answer, and back.

use lotsfree_units::{Grouped, Percent};
use serde::Deserialize;

use super::Result;
use super::application::{Answer, Application, Expected, Lines, output};
use super::host::{Host, Values};

/// A remedy that was followed, and what it did.
pub(super) struct Followed {
    pub version: String,
    pub provoked: String,
    pub finding: Finding,
    pub before: Answer,
    pub after: Answer,
    /// The figure that the model predicted.
    pub expected: Option<Expected>,
    /// Commands that were typed, with what they printed.
    pub typed: Vec<(String, String)>,
    pub verified: Vec<(String, String)>,
}

/// The largest error of a prediction, as a share of what was measured. A guess: the only trial was 1.7 and
/// 1.8 % off.
const MOST_ERROR: f64 = 0.05;

/// A finding of `lotsfree doctor --format json`, as far as it is followed.
#[derive(Debug, Deserialize)]
pub(super) struct Finding {
    pub rule: String,
    pub title: String,
    #[serde(default)]
    pub remedies: Vec<Remedy>,
}

/// A remedy of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Remedy {
    pub title: String,
    #[serde(default)]
    pub runtime: Vec<String>,
    #[serde(default)]
    pub persistent: Vec<Lines>,
    #[serde(default)]
    pub undo: Vec<String>,
    pub restart: Option<String>,
    #[serde(default)]
    pub verify: Vec<String>,
}

#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

impl Followed {
    /// In one line.
    pub(super) fn summary(&self) -> String {
        let told = self.told().map_or_else(String::new, |told| format!(". {told}"));
        format!("{}; before: {}; after: {}{told}", self.finding.title, self.before.said, self.after.said)
    }

    /// How far the model was from what became of it, as a share of that.
    fn error(&self) -> Option<f64> {
        Some((self.expected?.figure / self.after.figure - 1.0).abs())
    }

    /// What the model predicted, beside what became of it.
    pub(super) fn told(&self) -> Option<String> {
        let Expected { figure, of } = self.expected?;
        let [said, is] = [figure, self.after.figure].map(|figure| Grouped(figure as u64));
        let error = Percent(self.error()?);
        Some(format!("The model predicted {said} {of}; afterwards there were {is} ({error} off)"))
    }

    /// The remedy that was followed.
    pub(super) fn remedy(&self) -> Option<&Remedy> {
        self.finding.remedies.first()
    }
}

/// Provokes, diagnoses, follows the first remedy literally, asks the application again, and undoes it.
///
/// # Errors
/// If any of it does not work as the doctor says.
pub(super) fn follow(host: &Host, settings: &[&str], application: &mut dyn Application) -> Result<Followed> {
    application.start(&[])?;
    let before = application.answer()?;
    let expected = application.expected()?;
    let finding = diagnose(host, application)?
        .ok_or_else(|| format!("the doctor does not find {}", application.rule()))?;
    let remedy = finding.remedies.first().ok_or("the finding has no remedy")?.clone();
    let as_provoked = Values::read(settings)?;
    let environment = application.environment();
    let run = |commands: &[String]| -> Result<Vec<(String, String)>> {
        commands
            .iter()
            .map(|command| {
                eprintln!("  # {command}");
                Ok((command.clone(), output(&mut host.shell(command, &environment))?))
            })
            .collect()
    };
    eprintln!("  undo: {}", remedy.undo.join("; "));
    let followed = run(&remedy.runtime).and_then(|typed| {
        if remedy.restart.is_some() || application.has_happened() {
            application.stop()?;
            application.start(&remedy.persistent)?;
        }
        // The doctor ends with 1 as long as it finds anything; whether it still finds this is asked below.
        let commands: Vec<String> =
            remedy.verify.iter().filter(|command| !command.starts_with("lotsfree doctor")).cloned().collect();
        Ok((typed, run(&commands)?, application.answer()?))
    });
    let again = followed.is_ok().then(|| diagnose(host, application)).transpose();
    // Put back first, whatever failed.
    let stopped = application.stop();
    let undone = run(&remedy.undo);
    let (typed, verified, after) = followed?;
    if let Some(still) = again?.flatten().filter(|_| !application.has_happened()) {
        return Err(format!("the doctor still finds: {}", still.title).into());
    }
    stopped?;
    undone?;
    let differing = as_provoked.differing();
    if !differing.is_empty() {
        return Err(format!("after the undo: {}", differing.join("; ")).into());
    }
    if !application.is_better(before.figure, after.figure) {
        return Err(format!("no better: before {}; after {}", before.said, after.said).into());
    }
    let followed = Followed {
        version: application.version()?,
        provoked: application.provoked(),
        finding,
        before,
        after,
        expected,
        typed,
        verified,
    };
    match followed.error() {
        Some(error) if error > MOST_ERROR => Err(followed.told().unwrap_or_default().into()),
        _ => Ok(followed),
    }
}

/// The first finding of its rule on this host that is about an application.
fn diagnose(host: &Host, application: &dyn Application) -> Result<Option<Finding>> {
    let report = output(&mut host.shell("lotsfree doctor --format json --fail-on never", &[]))?;
    let report: Report = serde_json::from_str(&report)?;
    let subject = application.subject();
    let mut findings = report.findings.into_iter().filter(|finding| finding.rule == application.rule());
    let is_about = |remedy: &Remedy| {
        subject.is_empty() || remedy.runtime.iter().any(|command| command.contains(&subject))
    };
    Ok(findings.find_map(|mut finding| {
        let had = finding.remedies.len();
        finding.remedies.retain(is_about);
        (had == 0 || !finding.remedies.is_empty()).then_some(finding)
    }))
}
