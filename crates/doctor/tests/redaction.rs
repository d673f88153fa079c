//! What `lotsfree snapshot` replaces before an archive is mailed: no name of the host is left in it, and the
//! rules find the same.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it did"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_doctor::{Workload, diagnose};
use lotsfree_snapshot::source::archive::{Archive, ArchiveWriter, Bounds, Manifest};
use lotsfree_snapshot::source::redact::{Redaction, Redactor, TOKENS};
use lotsfree_snapshot::source::text::TextArchive;
use lotsfree_snapshot::source::{MemorySource, RecordLimits, Recorder};
use lotsfree_snapshot::{Input, Options, Source, collect, observe};
use serde_json::Value;

/// The instants of a host.
type Samples = Vec<(f64, MemorySource)>;

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            found.push(path);
        }
    }
}

/// All fixtures that are trees, by their paths.
fn fixtures() -> Vec<(PathBuf, Samples)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut paths = Vec::new();
    for directory in ["articles", "hosts", "rules"] {
        files_below(&root.join(directory), &mut paths);
    }
    paths.sort();
    let read = |path: PathBuf| {
        let archive = TextArchive::parse(&fs::read(&path).unwrap()).ok()?;
        Some((path, archive.samples))
    };
    let fixtures: Vec<_> = paths.into_iter().filter_map(read).collect();
    assert!(fixtures.len() > 150, "{}", fixtures.len());
    fixtures
}

/// The same instants as an archive of them has them, and what stands for names afterwards.
fn redacted(samples: &Samples) -> (Samples, Redactor) {
    let mut redactor = Redactor::new(Redaction::Standard);
    let mut kept = Vec::new();
    for (at, source) in samples {
        let recorder = Recorder::new(source.clone(), RecordLimits::default(), redactor);
        collect(&recorder, &Options::default());
        let recorded = recorder.finish();
        assert_eq!(recorded.left_out, 0);
        redactor = recorded.redactor;
        kept.push((*at, recorded.source));
    }
    (kept, redactor)
}

fn diagnosed(samples: &Samples) -> Value {
    let samples =
        samples.iter().map(|(at, source)| (*at, Box::new(source.clone()) as Box<dyn Source>)).collect();
    let input = Input { samples, ..lotsfree_snapshot::source::open_bytes(b"-- proc/x --\n", "x").unwrap() };
    serde_json::to_value(diagnose(&observe(input, &Options::default()))).unwrap()
}

/// Whether `plain` is `hidden` with names in place of its tokens, each token standing for one text.
fn is_same_but_for_tokens(plain: &str, hidden: &str) -> bool {
    if plain == hidden {
        return true;
    }
    // What lies between tokens has to occur in this order.
    let literals = between_tokens(hidden);
    let (first, last) = (&literals[0], &literals[literals.len() - 1]);
    if literals.len() < 2
        || plain.len() < first.len() + last.len()
        || !plain.starts_with(first)
        || !plain.ends_with(last)
    {
        return false;
    }
    let mut rest = &plain[first.len()..plain.len() - last.len()];
    for literal in &literals[1..literals.len() - 1] {
        match rest.find(&**literal) {
            Some(at) => rest = &rest[at + literal.len()..],
            None => return false,
        }
    }
    true
}

/// A text taken apart at its tokens.
fn between_tokens(text: &str) -> Vec<String> {
    let mut literals = vec![String::new()];
    let mut rest = text;
    while !rest.is_empty() {
        let after_letter = text[..text.len() - rest.len()].ends_with(|c: char| c.is_ascii_lowercase());
        let token =
            TOKENS.iter().filter(|_| !after_letter || rest.starts_with("sid") || rest.starts_with("id"));
        let token = token.map(|class| {
            let digits = rest
                .strip_prefix(class)
                .map_or("", |rest| &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]);
            if digits.is_empty() { 0 } else { class.len() + digits.len() }
        });
        match token.max().unwrap_or(0) {
            0 => {
                let next = rest.chars().next().unwrap();
                literals.last_mut().unwrap().push(next);
                rest = &rest[next.len_utf8()..];
            }
            length => {
                literals.push(String::new());
                rest = &rest[length..];
            }
        }
    }
    literals
}

/// Where two diagnoses differ in more than tokens.
fn differences(at: &str, plain: &Value, hidden: &Value, found: &mut Vec<String>) {
    match (plain, hidden) {
        (Value::Object(plain), Value::Object(hidden)) => {
            let keys: BTreeSet<&String> = plain.keys().chain(hidden.keys()).collect();
            for key in keys {
                let (plain, hidden) =
                    (plain.get(key).unwrap_or(&Value::Null), hidden.get(key).unwrap_or(&Value::Null));
                differences(&format!("{at}.{key}"), plain, hidden, found);
            }
        }
        (Value::Array(plain), Value::Array(hidden)) if plain.len() == hidden.len() => {
            for (i, (plain, hidden)) in plain.iter().zip(hidden).enumerate() {
                differences(&format!("{at}[{i}]"), plain, hidden, found);
            }
        }
        (Value::String(plain), Value::String(hidden)) if is_same_but_for_tokens(plain, hidden) => {}
        _ if plain == hidden => {}
        _ => found.push(format!("{at}: {plain} became {hidden}")),
    }
}

/// Names that hosts have and that are keys, fields, units or programs as well.
const HOSTS: [&str; 20] = [
    "vm", "kernel", "net", "fs", "memory", "node", "cpu", "kB", "total", "swap", "proc", "oracle", "java",
    "postgres", "system", "Node", "zone", "max", "slice", "MemTotal",
];

/// The same instants on a host of this name.
fn on_host(samples: &Samples, host: &str) -> Samples {
    let mut named = samples.clone();
    for (_, source) in &mut named {
        source.insert("proc/sys/kernel/hostname", format!("{host}\n"));
    }
    named
}

/// What is kept of every file, without asking which of them are read.
fn all_kept(samples: &Samples) -> Vec<u8> {
    let mut redactor = Redactor::new(Redaction::Standard);
    let mut kept = Vec::new();
    for (_, source) in samples {
        for (path, contents) in source.files() {
            let Ok(contents) = contents else { continue };
            kept.extend(redactor.path(path).unwrap_or_default().into_bytes());
            kept.extend(redactor.contents(path, contents).unwrap_or_default());
        }
    }
    kept
}

#[test]
fn fixtures_keep_their_findings_whatever_the_host_is_called() {
    let mut wrong = Vec::new();
    for (path, samples) in fixtures() {
        let named = on_host(&samples, "acme");
        let (plain, hidden) = (diagnosed(&named), diagnosed(&redacted(&named).0));
        let mut found = Vec::new();
        differences("", &plain, &hidden, &mut found);
        wrong.extend(found.iter().map(|found| format!("{}: {found}", path.display())));
        // Under another name the same is kept to the byte, so that the rules need not be asked again.
        let same = all_kept(&named);
        for host in HOSTS {
            if all_kept(&on_host(&samples, host)) != same {
                wrong.push(format!("{}: on the host {host} something else is kept", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_finding_that_is_lost_or_changed_is_noticed() {
    assert!(is_same_but_for_tokens("pid 7 acme (x) has 5 GiB", "pid 7 program1 has 5 GiB"));
    assert!(is_same_but_for_tokens("/system.slice/a-b.service", "/system.slice/unit1-unit2.service"));
    for (plain, hidden) in
        [("has 5 GiB", "has 6 GiB"), ("acme has 5", "program1 has 6"), ("vm.swappiness", "host1.swappines")]
    {
        assert!(!is_same_but_for_tokens(plain, hidden), "{plain} {hidden}");
    }
    let mut found = Vec::new();
    differences(
        "",
        &serde_json::json!({"findings": [1, 2]}),
        &serde_json::json!({"findings": [1]}),
        &mut found,
    );
    assert_eq!(found.len(), 1);
}

/// Makes tokens that no fixture has, and writes them into files without knowing what the files are.
struct Planter {
    random: fastrand::Rng,
    planted: BTreeSet<String>,
}

/// Numbers and units; every other word may be a name.
fn is_plain(word: &str) -> bool {
    word.bytes().all(|b| !b.is_ascii_alphabetic()) || word.bytes().all(|b| b.is_ascii_hexdigit())
}

impl Planter {
    fn new(seed: u64) -> Self {
        Planter { random: fastrand::Rng::with_seed(seed), planted: BTreeSet::new() }
    }

    /// Letters only, so that no number can hide it; some have capitals.
    fn token(&mut self) -> String {
        let letters: String = (0..8).map(|_| self.random.lowercase()).collect();
        let mut token = format!("zq{letters}xj");
        if self.random.bool() {
            token.make_ascii_uppercase();
        }
        self.planted.insert(token.clone());
        token
    }

    /// A word with a token in it, or in its place.
    fn word(&mut self, word: &str) -> String {
        let token = self.token();
        match self.random.u8(..10) {
            0..3 => token,
            3..5 => format!("{word}{token}"),
            5 => format!("{word}-{token}"),
            6 => format!("{token}{word}"),
            7 => format!("{word} ({token}) [x]"),
            8 => format!("{word}.{token}"),
            _ => format!("{word}:{token}"),
        }
    }

    /// Some words of a line.
    fn line(&mut self, line: &str, one_in: usize) -> String {
        let is_inside = |c: char| c.is_alphanumeric() || "_-+.".contains(c);
        let mut out = String::new();
        let mut rest = line;
        while !rest.is_empty() {
            let inside = rest.starts_with(is_inside);
            let end = rest.find(|c| is_inside(c) != inside).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if inside && !is_plain(word) && self.random.usize(..one_in) == 0 {
                out.push_str(&self.word(word));
            } else {
                out.push_str(word);
            }
            rest = after;
        }
        if self.random.usize(..one_in * 8) == 0 {
            let token = self.token();
            let forms = [
                format!(" # {token}"),
                format!(" {token}={token}"),
                format!(", {token}"),
                format!(" /{token}/{token}"),
            ];
            out.push_str(&forms[self.random.usize(..forms.len())]);
        }
        out
    }

    fn contents(&mut self, contents: &[u8], one_in: usize) -> Vec<u8> {
        let text = String::from_utf8_lossy(contents);
        let mut out = String::new();
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            out.push_str(&self.line(line, one_in));
            out.push_str(end);
            if self.random.usize(..one_in * 40) == 0 {
                let token = self.token();
                out.push_str(&format!("# {token}\n{token} {token}\n[{token}]\n{token}: {token} kB\n"));
            }
        }
        out.into_bytes()
    }

    /// Now and then a name in a path, of a file that may be read under another name.
    fn path(&mut self, path: &str, one_in: usize) -> String {
        let parts: Vec<String> = path
            .split('/')
            .enumerate()
            .map(|(i, part)| {
                if i < 2 || is_plain(part) || self.random.usize(..one_in * 4) > 0 {
                    return part.to_owned();
                }
                let token = self.token();
                match part.rsplit_once('.') {
                    Some((base, end)) if self.random.bool() => format!("{base}-{token}.{end}"),
                    _ => format!("{part}{token}"),
                }
            })
            .collect();
        parts.join("/")
    }

    fn source(&mut self, source: &MemorySource, one_in: usize) -> MemorySource {
        let mut planted = MemorySource::default();
        for (path, contents) in source.files() {
            let path = self.path(path, one_in);
            match contents {
                Ok(contents) => planted.insert(path, self.contents(contents, one_in)),
                Err(error) => planted.insert_error(path, error.clone()),
            }
        }
        for (path, listing) in source.directories() {
            planted.insert_directory(path, listing.clone());
        }
        let names: Vec<String> = (0..2).map(|_| self.token()).collect();
        planted.insert(
            format!("etc/sysctl.d/90-{}.conf", names[0]),
            format!("# {}\nvm.swappiness = 7\n", names[1]),
        );
        planted.insert("proc/sys/kernel/hostname", format!("{}.example\n", self.token()));
        planted
    }
}

/// Every token that is left in what is written, with where it is: contents and paths in one text, and the
/// manifest.
fn leaks(samples: &Samples, redactor: &mut Redactor, planter: &Planter) -> Vec<String> {
    let host = collect(&samples[0].1, &Options::default()).host;
    let manifest = Manifest {
        host: redactor.host_name(&host.hostname),
        kernel: redactor.kernel_release(&host.kernel.release),
        ..Manifest::default()
    };
    let mut all = format!("{manifest:?}\n").into_bytes();
    all.extend(TextArchive { comment: String::new(), samples: samples.clone() }.print());
    tokens_in(&String::from_utf8_lossy(&all).to_ascii_lowercase(), planter)
}

fn tokens_in(lower: &str, planter: &Planter) -> Vec<String> {
    if !lower.contains("zq") {
        return Vec::new();
    }
    // The first letters of a token are a leak as well.
    let starts = planter.planted.iter().map(|token| token.to_ascii_lowercase()[..8].to_owned());
    starts.filter(|start| lower.contains(start)).map(|start| excerpt(lower, &start)).collect()
}

fn excerpt(text: &str, token: &str) -> String {
    let at = text.find(token).unwrap();
    let from = text.floor_char_boundary(at.saturating_sub(80));
    text[from..text.floor_char_boundary((at + 60).min(text.len()))].replace('\n', "⏎")
}

fn paths_of(samples: &Samples) -> Vec<String> {
    samples.iter().flat_map(|(_, source)| source.files().map(|(path, _)| path.to_owned())).collect()
}

/// The planter must be heard of where nothing is replaced, else its silence says nothing.
#[test]
fn planted_names_are_found_where_nothing_is_replaced() {
    let (_, samples) = fixtures().swap_remove(3);
    let mut planter = Planter::new(1);
    let hostile: Samples = samples.iter().map(|(at, source)| (*at, planter.source(source, 8))).collect();
    let found = leaks(&hostile, &mut Redactor::new(Redaction::Full), &planter);
    assert_eq!(found.len(), planter.planted.len());
}

#[test]
fn names_planted_in_any_field_of_any_file_are_found_nowhere() {
    let mut planted = 0;
    let mut wrong = Vec::new();
    for (i, (path, samples)) in fixtures().into_iter().enumerate() {
        // Few, so that most of a file is still read as what it is, and many.
        for (round, one_in) in [(0, 40), (1, 8), (2, 2)] {
            let mut planter = Planter::new(i as u64 * 3 + round);
            let hostile: Samples =
                samples.iter().map(|(at, source)| (*at, planter.source(source, one_in))).collect();
            let (kept, mut redactor) = redacted(&hostile);
            for leak in leaks(&kept, &mut redactor, &planter) {
                wrong.push(format!("{} (1 in {one_in}): {leak}", path.display()));
            }
            // The tar archive has its own paths and manifest; that some are looked at is enough.
            if i % 20 == 0 {
                let writer = ArchiveWriter { manifest: Manifest::default(), samples: kept };
                let archive =
                    Archive::read_zstd(&writer.to_bytes(1 << 30).unwrap()[..], &Bounds::default()).unwrap();
                wrong.extend(tokens_in(
                    &format!("{:?} {:?}", archive.manifest, paths_of(&archive.samples)),
                    &planter,
                ));
            }
            planted += planter.planted.len();
        }
    }
    println!("{planted} tokens were planted");
    assert!(planted >= 1000, "only {planted} tokens were planted");
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

/// What a rule recognises a server by is kept, however the rest of the name is.
#[test]
fn programs_are_recognised_by_what_stands_for_their_names() {
    let mut redactor = Redactor::new(Redaction::Standard);
    let names = [
        "postgres",
        "postmaster",
        "mysqld",
        "mariadbd",
        "sqlservr",
        "db2sysc",
        "dataserver",
        "mongod",
        "redis-server",
        "valkey-server",
        "tikv-server",
        "tidb-server",
        "java",
        "testpmd",
        "ovs-vswitchd",
        "vpp_main",
        "disp+work",
        "sapstartsrv",
        "qemu-kvm",
        "kvm",
        "ora_pmon_ACME",
        "asm_pmon_+ASM",
        "oracleACME",
        "oracle_77_ac",
        "oracle",
        "hdbindexserver",
        "dw.sapACM_D00",
        "qemu-system-x86",
        "dpdk-l2fwd",
        "oracle-cloud-ag",
        "hdbsql",
        "qemu-ga",
        "hdbuserstore",
        "hdbbackint",
        "kubelet",
        "tuned",
        "earlyoom",
        "corosync",
        "pacemakerd",
        "ocssd.bin",
    ];
    let ends = ["", "Acme", "-acme", "_acme", " (acme)"];
    for name in names.iter().flat_map(|name| ends.map(|end| format!("{name}{end}"))) {
        let stat = format!("42 ({name}) S 1 42 42 0 -1 0 7 0\n");
        let kept = String::from_utf8(redactor.contents("proc/42/stat", stat.as_bytes()).unwrap()).unwrap();
        let kept = &kept[kept.find('(').unwrap() + 1..kept.rfind(')').unwrap()];
        assert!(!kept.to_ascii_lowercase().contains("acme"), "{name} became {kept}");
        assert_eq!(Workload::of_name(kept), Workload::of_name(&name), "{name} became {kept}");
    }
}
