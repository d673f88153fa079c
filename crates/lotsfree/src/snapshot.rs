//! `lotsfree snapshot`.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use lotsfree_snapshot::source::archive::{ArchiveWriter, Manifest};
use lotsfree_snapshot::source::redact::{Redaction, Redactor};
use lotsfree_snapshot::source::text::TextArchive;
use lotsfree_snapshot::source::{Deadline, MemorySource, RecordLimits, Recorder, TreeSource};
use lotsfree_snapshot::{Options, Snapshot, collect};
use lotsfree_storage::Access;
use lotsfree_units::visible;

use crate::cli::{SnapshotArgs, SnapshotFormat};
use crate::output;

/// A finished capture.
struct Capture {
    samples: Vec<(f64, MemorySource)>,
    manifest: Manifest,
}

/// Captures everything that the rules read into one archive.
pub(crate) fn run(arguments: &SnapshotArgs) -> anyhow::Result<u8> {
    let Capture { samples, manifest } = capture(arguments)?;
    let mut files = 0;
    for (_, source) in &samples {
        files += source.files().filter(|(_, contents)| contents.is_ok()).count();
    }
    let writer = ArchiveWriter { manifest, samples };
    let limit = u64::from(arguments.max_size) << 20;
    let (extension, bytes) = match arguments.format {
        SnapshotFormat::Archive => ("tar.zst", writer.to_bytes(limit)?),
        SnapshotFormat::Text => ("txt", text(&writer)),
    };
    let path = match &arguments.output {
        Some(path) if path == Path::new("-") => {
            let terminal = io::stdout().is_terminal();
            anyhow::ensure!(
                arguments.format == SnapshotFormat::Text || !terminal,
                "an archive does not belong on a terminal; use -o FILE or --format text"
            );
            match terminal {
                // Text on a terminal is to be looked at, not kept.
                true => output::print(&visible(&String::from_utf8_lossy(&bytes)))?,
                false => output::print_bytes(&bytes)?,
            }
            return Ok(0);
        }
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.{extension}", writer.directory())),
    };
    output::save(&path, Access::Private, &bytes)?;
    let redacted = match arguments.full {
        true => "names included, nothing replaced",
        false => "names replaced; --full keeps them",
    };
    output::remark(&format!(
        "{}: {files} files, {} KiB, {redacted}",
        path.display(),
        bytes.len().div_ceil(1024)
    ));
    if writer.manifest.left_out > 0 {
        output::remark(&format!("{} files did not fit and were left out", writer.manifest.left_out));
    }
    Ok(0)
}

fn capture(arguments: &SnapshotArgs) -> anyhow::Result<Capture> {
    let limits = RecordLimits { total: (arguments.max_size as usize) << 20, ..RecordLimits::default() };
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(arguments.max_time);
    // Half of the time may be spent on walking page tables; the rest is for everything else.
    let share = arguments.max_time / 2.0 / f64::from(arguments.samples);
    let options = Options { walk_budget: Duration::from_secs_f64(share), ..Options::default() };
    let level = if arguments.full { Redaction::Full } else { Redaction::Standard };
    let mut redactor = Redactor::new(level);
    let mut capture = Capture { samples: Vec::new(), manifest: Manifest::default() };
    for index in 0..arguments.samples {
        if index > 0 {
            let due = Duration::from_secs_f64(arguments.interval * f64::from(index));
            let note = format!("{index} of {} samples taken", arguments.samples);
            output::progress(arguments.interval * f64::from(arguments.samples - 1), &note);
            thread::sleep(due.saturating_sub(started.elapsed()));
        }
        let seconds =
            if index == 0 { 0.0 } else { (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0 };
        let live = Deadline::new(TreeSource::live().context("cannot open /")?, until + started.elapsed());
        let recorder = Recorder::new(live, limits, redactor);
        let snapshot = collect(&recorder, &options);
        let recorded = recorder.finish();
        redactor = recorded.redactor;
        if index == 0 {
            describe(&mut capture.manifest, &snapshot, &mut redactor);
        }
        capture.manifest.left_out += recorded.left_out;
        capture.samples.push((seconds, recorded.source));
    }
    Ok(capture)
}

fn describe(manifest: &mut Manifest, snapshot: &Snapshot, redactor: &mut Redactor) {
    manifest.lotsfree = env!("CARGO_PKG_VERSION").to_owned();
    manifest.taken_at = snapshot.taken_at.unwrap_or(0.0).floor();
    manifest.page_size = snapshot.host.page_size.bytes().0;
    manifest.kernel = redactor.kernel_release(&snapshot.host.kernel.release);
    manifest.host = redactor.host_name(&snapshot.host.hostname);
    manifest.redaction = redactor.level().name().to_owned();
}

fn text(writer: &ArchiveWriter) -> Vec<u8> {
    let manifest = &writer.manifest;
    let comment = format!(
        "Snapshot of {} by lotsfree {}, Linux {}, redaction {}.\n",
        writer.directory(),
        manifest.lotsfree,
        manifest.kernel,
        manifest.redaction
    );
    TextArchive { comment, samples: writer.samples.clone() }.print()
}
