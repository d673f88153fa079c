//! `pictures`: makes PNGs of runs for the README, with a headless browser.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lotsfree_report::runs::{PicturePage, runs_pictures};
use lotsfree_run::{Run, is_run};

use crate::docs::root;

/// Names that Chromium goes by.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
/// Pixels of the PNG per CSS pixel.
const SCALE: u32 = 2;

/// Draws runs into `docs/pictures`, one light and one dark PNG per picture. Each argument is a run directory,
/// a directory of runs, or the name of a scenario in `scenarios/`, which is simulated first. Run directories
/// next to each other in the arguments are one set.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    if arguments.is_empty() {
        return Err("name run directories, directories of runs, or scenarios".into());
    }
    let browser = browser()?;
    let out = root().join("docs/pictures");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    for (name, runs) in sets(arguments)? {
        for picture in runs_pictures(&runs) {
            for dark in [false, true] {
                let tone = if dark { "-dark" } else { "" };
                let png = out.join(format!("{name}-{}{tone}.png", picture.name));
                photograph(&browser, &picture, dark, &png)?;
                eprintln!("{}", png.display());
            }
        }
    }
    Ok(())
}

/// The name and the runs of each set.
fn sets(arguments: &[String]) -> Result<Vec<(String, Vec<Run>)>, String> {
    let mut sets: Vec<(String, Vec<Run>)> = Vec::new();
    let mut after_run = false;
    for argument in arguments {
        let path = Path::new(argument);
        let name =
            path.file_name().map_or_else(|| "runs".to_owned(), |name| name.to_string_lossy().into_owned());
        if is_run(path) {
            let run = Run::open(path).map_err(|error| error.to_string())?;
            match sets.last_mut().filter(|_| after_run) {
                Some((_, runs)) => runs.push(run),
                None => sets.push((name, vec![run])),
            }
            after_run = true;
            continue;
        }
        after_run = false;
        let directory = if path.is_dir() { path.to_owned() } else { simulate(argument)? };
        let mut runs = Vec::new();
        open_below(&directory, &mut runs)?;
        // The run that began first is that of the scenario as it stands, with which the others are compared.
        let began = |run: &Run| run.timing().map_or(f64::MAX, |timing| timing.started);
        runs.sort_by(|a, b| began(a).total_cmp(&began(b)));
        if runs.is_empty() {
            return Err(format!("{}: no run in it", directory.display()));
        }
        sets.push((name, runs));
    }
    Ok(sets)
}

/// Opens the runs below a directory: a sweep has a directory of runs for each variant.
fn open_below(directory: &Path, runs: &mut Vec<Run>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if is_run(&path) {
            runs.push(Run::open(&path).map_err(|error| error.to_string())?);
        } else if entry.file_type().map_err(failed)?.is_dir() {
            open_below(&path, runs)?;
        }
    }
    Ok(())
}

/// Runs a scenario that ships; returns the directory of its runs.
fn simulate(name: &str) -> Result<PathBuf, String> {
    let scenario = root().join("scenarios").join(format!("{name}.toml"));
    if !scenario.is_file() {
        return Err(format!(
            "{name}: neither a directory nor a scenario ({} does not exist)",
            scenario.display()
        ));
    }
    let directory = root().join("target/pictures").join(name);
    let done = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "lotsfree", "--", "sim"])
        .arg(&scenario)
        .arg("-o")
        .arg(&directory)
        .current_dir(root())
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if done.success() { Ok(directory) } else { Err(format!("lotsfree sim {name}: {done}")) }
}

/// The first browser that answers; that of `CHROMIUM`, if set, is tried first.
fn browser() -> Result<String, String> {
    let named = std::env::var("CHROMIUM").ok();
    let names = named.iter().map(String::as_str).chain(BROWSERS);
    let answers = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let found = names.into_iter().find(answers).map(str::to_owned);
    found.ok_or_else(|| "no Chromium (Debian package chromium; CHROMIUM names another one)".to_owned())
}

fn photograph(browser: &str, picture: &PicturePage, dark: bool, png: &Path) -> Result<(), String> {
    let page = png.with_extension("html");
    fs::write(&page, &picture.html).map_err(|error| format!("{}: {error}", page.display()))?;
    let mut command = Command::new(browser);
    command.args(["--headless", "--disable-gpu", "--force-color-profile=srgb", "--hide-scrollbars"]);
    command.arg(format!("--force-device-scale-factor={SCALE}"));
    command.arg(format!("--window-size={},{}", picture.width, picture.height));
    command.arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }));
    // Chromium refuses to run as root with its sandbox. The page was made here and loads nothing.
    if fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        command.arg("--no-sandbox");
    }
    command.arg(format!("--screenshot={}", png.display())).arg(format!("file://{}", page.display()));
    let _ = fs::remove_file(png);
    let output = command.output().map_err(|error| format!("{browser}: {error}"));
    let _ = fs::remove_file(&page);
    let output = output?;
    if output.status.success() && png.is_file() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no picture was written");
    Err(format!("{browser}: {last}"))
}
