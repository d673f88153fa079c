//! `docs/accuracy.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;

use super::statistics::{Share, kappa};
use super::{Input, Judgement, Peer, SETS, Said, Set, Word, rows, verdicts};

/// How many of the worst are named.
const WORST: usize = 10;
/// What the project aims at, on test inputs whose cause is established: value, and bound of the interval.
const RECALL: (f64, f64) = (0.80, 0.70);
const USEFUL: f64 = 0.85;
const WRONG: (f64, f64) = (0.03, 0.08);

/// One judged input.
#[derive(Clone, Copy)]
struct Judged<'a> {
    input: &'a Input,
    said: &'a Said,
}

impl Judged<'_> {
    /// Whether a judge read the cause from the output.
    fn named_by(&self, judgement: &Judgement) -> bool {
        self.input.cause.as_ref().is_some_and(|cause| judgement.names.contains(cause))
    }

    /// Whether both judges did.
    fn named(&self) -> bool {
        !self.said.judged.is_empty() && self.said.judged.iter().all(|judgement| self.named_by(judgement))
    }

    /// The worse word of the judges for each finding.
    fn words(&self) -> Vec<Word> {
        let most = self.said.judged.iter().map(|judgement| judgement.findings.len()).max().unwrap_or(0);
        let worse = |at: usize| {
            self.said.judged.iter().filter_map(|judgement| judgement.findings.get(at)).max().copied()
        };
        (0..most).filter_map(worse).collect()
    }
}

/// What was measured with one program.
struct Measured<'a> {
    /// The test half.
    test: Vec<Judged<'a>>,
    /// Of these, what both judges saw.
    all: Vec<Judged<'a>>,
}

impl<'a> Measured<'a> {
    fn of(set: &Set, inputs: &'a [Input], said: &'a BTreeMap<String, Said>) -> Measured<'a> {
        let judged = inputs.iter().filter(|input| set.tests(input)).filter_map(|input| {
            let said = said.get(&input.id)?;
            Some(Judged { input, said })
        });
        let test: Vec<Judged<'a>> = judged.collect();
        let all = test.iter().filter(|judged| judged.said.judged.len() == 2).copied().collect();
        Measured { test, all }
    }

    fn established(&self) -> impl Iterator<Item = &Judged<'a>> {
        self.all.iter().filter(|judged| judged.input.established().is_some())
    }

    fn recall(&self) -> Share {
        Share::of(self.established().map(Judged::named))
    }

    /// Recall on inputs from which an expert could name the cause; nothing where nobody judged that.
    fn recall_of_visible(&self) -> Option<Share> {
        let share = Share::of(
            self.established().filter(|judged| judged.input.visible == Some(true)).map(Judged::named),
        );
        (share.all > 0).then_some(share)
    }

    /// Recall where another true cause counts as well.
    fn recall_of_any(&self) -> Option<Share> {
        let any = |judged: &Judged<'_>| {
            let other = |judgement: &Judgement| {
                judged.named_by(judgement)
                    || judged.input.also.iter().any(|cause| judgement.names.contains(cause))
            };
            judged.said.judged.iter().all(other)
        };
        let told = self.established().any(|judged| !judged.input.also.is_empty());
        told.then(|| Share::of(self.established().map(any)))
    }

    /// Recall by one judge alone.
    fn recall_by(&self, judge: usize) -> Share {
        let by = |judged: &Judged<'_>| {
            judged.said.judged.get(judge).is_some_and(|judgement| judged.named_by(judgement))
        };
        Share::of(self.established().map(by))
    }

    fn words(&self, is: impl Fn(Word) -> bool) -> Share {
        Share::of(self.all.iter().flat_map(Judged::words).map(is))
    }

    fn words_by(&self, judge: usize, is: impl Fn(Word) -> bool) -> Share {
        let of =
            |judged: &Judged<'_>| judged.said.judged.get(judge).map(|judgement| judgement.findings.clone());
        Share::of(self.all.iter().filter_map(of).flatten().map(is))
    }

    fn refused(&self) -> Share {
        Share::of(self.test.iter().map(|judged| judged.said.refused.is_some()))
    }

    /// How far the judges agree: on what is named, and on findings.
    fn agreement(&self) -> (Option<f64>, Option<f64>) {
        let pairs = |judged: &&Judged<'_>| judged.said.judged.len() == 2;
        let named: Vec<(bool, bool)> = self
            .established()
            .filter(pairs)
            .map(|judged| (judged.named_by(&judged.said.judged[0]), judged.named_by(&judged.said.judged[1])))
            .collect();
        let words: Vec<(Word, Word)> = self
            .all
            .iter()
            .filter(pairs)
            .flat_map(|judged| {
                let [first, second] = [&judged.said.judged[0].findings, &judged.said.judged[1].findings];
                first.iter().copied().zip(second.iter().copied()).collect::<Vec<_>>()
            })
            .collect();
        (kappa(&named), kappa(&words))
    }

    /// The inputs on which the doctor does worst: harmful, then wrong, then refused, then a cause that is
    /// not named.
    fn worst(&self) -> Vec<&Judged<'a>> {
        let rank = |judged: &Judged<'_>| {
            let worst = judged.words().into_iter().max().filter(|word| *word >= Word::Wrong);
            let missed = judged.input.established().is_some() && !judged.named();
            (worst, missed && judged.said.refused.is_some(), missed)
        };
        let mut worst: Vec<&Judged<'a>> =
            self.all.iter().filter(|judged| rank(judged) > (None, false, false)).collect();
        worst.sort_by_key(|judged| (std::cmp::Reverse(rank(judged)), judged.input.id.clone()));
        worst.truncate(WORST);
        worst
    }
}

/// The page.
///
/// # Errors
/// If a file of the fixtures cannot be read.
pub(crate) fn page() -> Result<String, Box<dyn Error>> {
    let mut read = Vec::new();
    for set in &SETS {
        read.push((set, rows::<Input>(set.inputs)?, verdicts(set.before)?, verdicts(set.after)?));
    }
    let measured: Vec<(&Set, &[Input], Measured<'_>, Measured<'_>)> = read
        .iter()
        .map(|(set, inputs, before, after)| {
            (*set, inputs.as_slice(), Measured::of(set, inputs, before), Measured::of(set, inputs, after))
        })
        .collect();
    let peers: Vec<Peer> = rows("peers.jsonl")?;
    let mut out = head().to_owned();
    for (set, inputs, before, after) in &measured {
        out.push_str(&about(set, inputs, after));
        results(&mut out, before, after)?;
        kinds(&mut out, before, after)?;
        causes(&mut out, before, after)?;
        if inputs.iter().any(|input| peers.iter().any(|peer| peer.id == input.id)) {
            others(&mut out, set, inputs, &peers, after)?;
        }
        worst(&mut out, "after", after)?;
        worst(&mut out, "before", before)?;
    }
    Ok(out)
}

fn head() -> &'static str {
    "# How often the doctor is right\n\n\
     <!-- Written by `cargo xtask docs` from fixtures/foreign; do not edit. -->\n\n\
     Inputs that nobody of this project made, from other projects' fixtures, mailing lists, issues and forums. Their truths\n\
     were written down from their sources before anybody looked at what the doctor says of them; once a set is judged, it is\n\
     open, rules are mended by it, and new inputs are gathered. [fixtures/foreign](../fixtures/foreign/README.md) has the\n\
     rules, each input's source and its truth.\n\n\
     Two judges, each by itself, saw the input and the output of two programs, without knowing which was which and without\n\
     the truth. They wrote down which causes of the list an output names in its first sentence and its first three\n\
     findings at *warning* or above, and one word for each finding: *useful*, *noise* (true and of no use), *wrong* or\n\
     *harmful*. A cause counts as named if both judges read it from the output; a finding counts as the worse of two\n\
     words. A refused input names nothing. Intervals are Wilson's, 95 %.\n\n\
     The judges are language models, and so is whoever gathered the inputs: a person who knows the field may judge\n\
     otherwise. *Before* is commit 4e17f60, where this work began; *after* is the commit that the set's heading names. What\n\
     was mended since is not in a set's figures. The aims are for at least 100 judged inputs with an established cause, which\n\
     the third and the fourth set have.\n\n"
}

/// The heading of a set, and what it is made of.
fn about(set: &Set, inputs: &[Input], after: &Measured<'_>) -> String {
    let count = |of: &dyn Fn(&Input) -> bool| inputs.iter().filter(|input| of(input)).count();
    let kinds: BTreeSet<&str> = inputs.iter().map(|input| input.kind.as_str()).collect();
    let mut text = format!(
        "## {}, measured at {}\n\n{} inputs of {} kinds. Of {} the source or the kernel's own report establishes the cause; {} \
         are whole kernel reports on memory.\n",
        set.name,
        set.commit,
        inputs.len(),
        kinds.len(),
        count(&|input| input.established().is_some()),
        count(&|input| input.report),
    );
    if set.opened > 0 {
        text.push_str(&format!(
            "{} are test inputs (SHA-256 with a first byte of {:#x} or more), {} of them with an established cause: nobody \
             looked at them, nor at what the doctor says of them, while rules changed.{}\n",
            count(&|input| set.tests(input)),
            set.opened,
            count(&|input| set.tests(input) && input.established().is_some()),
            set.remark,
        ));
    }
    text.push_str(&match after.test.len() - after.all.len() {
        0 => format!("Both judged all of them, {} with an established cause.\n\n", after.established().count()),
        _ => format!(
            "Both judged {} of these, {} of them with an established cause, in {}; the rest is not judged by two, and only \
             its refusals count here.\n\n",
            after.all.len(),
            after.established().count(),
            set.order,
        ),
    });
    text
}

/// `83 % (76 to 89 %, 95 of 114)`.
fn shown(share: Share) -> String {
    let (low, high) = share.interval();
    format!(
        "{:.0} % ({:.0} to {:.0} %, {} of {})",
        share.value() * 100.0,
        low * 100.0,
        high * 100.0,
        share.hits,
        share.all
    )
}

fn results(out: &mut String, before: &Measured<'_>, after: &Measured<'_>) -> Result<(), Box<dyn Error>> {
    let met = |yes: bool| if yes { "met" } else { "not met" };
    let recall = after.recall();
    let useful = after.words(|word| word == Word::Useful);
    let wrong = after.words(|word| word >= Word::Wrong);
    let harmful = after.words(|word| word == Word::Harmful);
    writeln!(out, "### Results\n")?;
    writeln!(out, "| | before | after | aim | |\n| --- | --- | --- | --- | --- |")?;
    writeln!(
        out,
        "| the cause is named, of established ones | {} | {} | 80 %, lower bound 70 % | {} |",
        shown(before.recall()),
        shown(recall),
        met(recall.value() >= RECALL.0 && recall.interval().0 >= RECALL.1)
    )?;
    let of_both = [
        ("of those from which an expert could tell", before.recall_of_visible(), after.recall_of_visible()),
        ("or another cause that is true as well", before.recall_of_any(), after.recall_of_any()),
    ];
    for (what, before, after) in of_both {
        if let (Some(before), Some(after)) = (before, after) {
            writeln!(out, "| {what} | {} | {} | | |", shown(before), shown(after))?;
        }
    }
    writeln!(
        out,
        "| findings that are useful | {} | {} | 85 % | {} |",
        shown(before.words(|word| word == Word::Useful)),
        shown(useful),
        met(useful.value() >= USEFUL)
    )?;
    writeln!(
        out,
        "| findings that are wrong | {} | {} | 3 %, upper bound 8 % | {} |",
        shown(before.words(|word| word >= Word::Wrong)),
        shown(wrong),
        met(wrong.value() <= WRONG.0 && wrong.interval().1 <= WRONG.1)
    )?;
    writeln!(
        out,
        "| findings that are harmful | {} | {} | none | {} |",
        shown(before.words(|word| word == Word::Harmful)),
        shown(harmful),
        met(harmful.hits == 0)
    )?;
    writeln!(out, "| inputs refused | {} | {} | | |\n", shown(before.refused()), shown(after.refused()))?;
    writeln!(out, "Each judge by itself, after:\n")?;
    writeln!(out, "| | first judge | second judge |\n| --- | --- | --- |")?;
    writeln!(out, "| the cause is named | {} | {} |", shown(after.recall_by(0)), shown(after.recall_by(1)))?;
    for (name, word) in
        [("useful", Word::Useful), ("noise", Word::Noise), ("wrong", Word::Wrong), ("harmful", Word::Harmful)]
    {
        let by = |judge| shown(after.words_by(judge, |other| other == word));
        writeln!(out, "| {name} | {} | {} |", by(0), by(1))?;
    }
    let kappa =
        |kappa: Option<f64>| kappa.map_or_else(|| "undefined".to_owned(), |kappa| format!("{kappa:.2}"));
    let (named, words) = after.agreement();
    let (named_before, words_before) = before.agreement();
    writeln!(
        out,
        "\nThe judges' agreement (Cohen's kappa): on whether the cause is named {} (before: {}), on the word for a finding {} \
         (before: {}).\n",
        kappa(named),
        kappa(named_before),
        kappa(words),
        kappa(words_before)
    )?;
    Ok(())
}

fn kinds(out: &mut String, before: &Measured<'_>, after: &Measured<'_>) -> Result<(), Box<dyn Error>> {
    writeln!(out, "### By kind of input\n")?;
    writeln!(
        out,
        "| kind | inputs | refused before | refused after | judged | established | named before | named after | findings | useful | wrong |"
    )?;
    writeln!(out, "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |")?;
    let kinds: BTreeSet<&str> = after.test.iter().map(|judged| judged.input.kind.as_str()).collect();
    for kind in kinds {
        let of = |judged: &&Judged<'_>| judged.input.kind == kind;
        let refused = |measured: &Measured<'_>| {
            measured.test.iter().filter(of).filter(|judged| judged.said.refused.is_some()).count()
        };
        let named = |measured: &Measured<'_>| {
            measured.established().filter(of).filter(|judged| judged.named()).count()
        };
        let words: Vec<Word> = after.all.iter().filter(of).flat_map(Judged::words).collect();
        let count = |is: &dyn Fn(Word) -> bool| words.iter().filter(|word| is(**word)).count();
        writeln!(
            out,
            "| {kind} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            after.test.iter().filter(of).count(),
            refused(before),
            refused(after),
            after.all.iter().filter(of).count(),
            after.established().filter(of).count(),
            named(before),
            named(after),
            words.len(),
            count(&|word| word == Word::Useful),
            count(&|word| word >= Word::Wrong)
        )?;
    }
    writeln!(out)?;
    Ok(())
}

fn causes(out: &mut String, before: &Measured<'_>, after: &Measured<'_>) -> Result<(), Box<dyn Error>> {
    writeln!(out, "### By cause\n")?;
    writeln!(out, "| cause | established | named before | named after |\n| --- | --: | --: | --: |")?;
    let causes: BTreeSet<&str> =
        after.established().filter_map(|judged| judged.input.established()).collect();
    for cause in causes {
        let of = |judged: &&Judged<'_>| judged.input.established() == Some(cause);
        let named = |measured: &Measured<'_>| {
            measured.established().filter(of).filter(|judged| judged.named()).count()
        };
        writeln!(
            out,
            "| {cause} | {} | {} | {} |",
            after.established().filter(of).count(),
            named(before),
            named(after)
        )?;
    }
    writeln!(out)?;
    Ok(())
}

fn others(
    out: &mut String,
    set: &Set,
    inputs: &[Input],
    peers: &[Peer],
    after: &Measured<'_>,
) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "### Other programs on the same inputs\n\n\
         On test inputs with an established cause. OOMAnalyser (b35dd5f) was run on the block from \"invoked oom-killer\" to the\n\
         kill; with lines that mail programs wrapped joined first, it would read 22 and name 17. xsos (3b10938) was run on the\n\
         meminfo in an input, and insights-core's parsers (43cbb25) on all; both print figures for a person to judge and name\n\
         nothing. hotsos (57b256c) and memstate of oled-tools (f81cdcc) expect a whole host: their own checks ran, or their\n\
         rules were applied, on what an input has; they would see more on a whole sosreport.\n"
    )?;
    let tested = |id: &str| inputs.iter().find(|input| input.id == id && set.tests(input));
    let cause = |id: &str| tested(id).and_then(Input::established);
    writeln!(out, "| program | inputs | it can read | it names the cause |\n| --- | --: | --: | --- |")?;
    let names: BTreeSet<&str> = peers.iter().map(|peer| peer.peer.as_str()).collect();
    for name in names {
        let rows: Vec<(&Peer, &str)> = peers
            .iter()
            .filter(|peer| peer.peer == name)
            .filter_map(|peer| Some((peer, cause(&peer.id)?)))
            .collect();
        let read = rows.iter().filter(|(peer, _)| peer.read).count();
        let named = Share::of(rows.iter().map(|(peer, cause)| peer.names.iter().any(|name| name == cause)));
        writeln!(out, "| {name} | {} | {read} | {} |", rows.len(), shown(named))?;
    }
    // The doctor's row is of what was judged.
    let all = after.established().count();
    let read = after.established().filter(|judged| judged.said.refused.is_none()).count();
    writeln!(out, "| lotsfree doctor (of the judged) | {all} | {read} | {} |\n", shown(after.recall()))?;
    Ok(())
}

fn worst(out: &mut String, when: &str, measured: &Measured<'_>) -> Result<(), Box<dyn Error>> {
    writeln!(out, "### The worst ten {when}\n")?;
    writeln!(out, "| input | truth | what the doctor said | judged |\n| --- | --- | --- | --- |")?;
    for judged in measured.worst() {
        let said = match (&judged.said.refused, judged.said.findings.first()) {
            (Some(_), _) => "refused".to_owned(),
            (None, Some(finding)) => finding.title.clone(),
            (None, None) => {
                judged.said.verdict.clone().unwrap_or_else(|| "nothing at warning or above".to_owned())
            }
        };
        let words: Vec<String> =
            judged.words().into_iter().map(|word| format!("{word:?}").to_lowercase()).collect();
        let mut result = words.join(", ");
        if judged.input.established().is_some() && !judged.named() {
            result = format!("{result}{}cause not named", if result.is_empty() { "" } else { "; " });
        }
        let cell = |text: &str| text.replace('|', "\\|");
        let name = match judged.input.source.starts_with("http") {
            true => format!("[{}]({})", judged.input.id, judged.input.source),
            false => format!("{} ({})", judged.input.id, cell(&judged.input.source)),
        };
        writeln!(
            out,
            "| {name} | {}: {} | {} | {result} |",
            judged.input.cause.as_deref().unwrap_or("not told"),
            cell(&judged.input.truth),
            cell(&said)
        )?;
    }
    writeln!(out)?;
    Ok(())
}
