//! `lotsfree lab kernel`.

use std::path::Path;

use anyhow::Context;
use lotsfree_lab::vm::{Kernel, kernel, store};
use lotsfree_units::visible_line;
use serde::Serialize;

use crate::cli::KernelArgs;
use crate::output;
use crate::signals::Signals;

/// A kernel of the cache, as JSON.
#[derive(Debug, Serialize)]
struct Row {
    release: String,
    directory: String,
    has_modules: bool,
    /// The package that was downloaded now.
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<String>,
}

impl Row {
    fn of(kernel: &Kernel, directory: &Path, package: Option<String>) -> Self {
        let directory = directory.display().to_string();
        Row { release: kernel.release.clone(), directory, has_modules: kernel.modules.is_some(), package }
    }
}

/// Downloads kernels, or lists those that are there.
pub(super) fn run(arguments: &KernelArgs) -> anyhow::Result<u8> {
    let cache = kernel::cache();
    if arguments.series.is_empty() {
        return list(&cache, arguments.json);
    }
    // A Ctrl-C also reaches apt; the directory of the download is then removed as after any other error.
    let signals = Signals::watch().context("cannot handle signals")?;
    let mut rows = Vec::new();
    for series in &arguments.series {
        let fetched =
            store::fetch(series, &cache, |package| output::remark(&format!("downloading {package}")));
        if let Some(code) = signals.code() {
            return Ok(code);
        }
        let store::Fetched { kernel, directory, package } = fetched?;
        let came =
            package.as_ref().map_or("was there already".to_owned(), |package| format!("from {package}"));
        output::remark(&format!("{}, {came}: {}", kernel.release, directory.display()));
        rows.push(Row::of(&kernel, &directory, package));
    }
    if arguments.json {
        output::print(&format!("{}\n", serde_json::to_string_pretty(&rows)?))?;
    }
    Ok(0)
}

fn list(cache: &Path, json: bool) -> anyhow::Result<u8> {
    let (mut rows, mut text) = (Vec::new(), String::new());
    for (directory, found) in store::list(cache) {
        match found {
            Ok(kernel) => {
                let modules = if kernel.modules.is_some() { "" } else { ", without modules" };
                text += &visible_line(&format!("{}{modules}: {}", kernel.release, directory.display()));
                text.push('\n');
                rows.push(Row::of(&kernel, &directory, None));
            }
            Err(error) => output::remark(&format!("not a kernel: {error}")),
        }
    }
    if json {
        text = format!("{}\n", serde_json::to_string_pretty(&rows)?);
    } else if rows.is_empty() {
        output::remark(&format!("no kernel in {}; lotsfree lab kernel 6.1 downloads one", cache.display()));
    }
    output::print(&text)?;
    Ok(0)
}
