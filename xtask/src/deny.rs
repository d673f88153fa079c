//! Compares the packages that cargo resolves with what `deny.toml` allows.
//!
//! cargo-deny takes longer to build than CI has time left, so the two sections that need no network are
//! enforced here, from the same file: licences, with the crate by which cargo-deny itself reads them, and the
//! sources of packages. `cargo deny check advisories` still checks advisories.

use std::error::Error;
use std::fs;
use std::path::Path;

use cargo_metadata::semver::VersionReq;
use cargo_metadata::{Metadata, MetadataCommand, Package};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use crate::docs;

/// `deny.toml`. A key that is not known here is refused, so that no key is obeyed by cargo-deny only, except
/// in the sections that are cargo-deny's alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    #[serde(rename = "graph")]
    _graph: toml::Table,
    licenses: Licenses,
    sources: Sources,
    #[serde(rename = "bans")]
    _bans: Bans,
    #[serde(rename = "advisories")]
    _advisories: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

/// Licences that one crate may have in addition to those that all may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    package: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Denied,
    unknown_git: Denied,
    allow_registry: Vec<String>,
    allow_git: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    #[serde(rename = "wildcards")]
    _wildcards: Denied,
    #[serde(rename = "allow-wildcard-paths")]
    _allow_wildcard_paths: bool,
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Allowed,
}

/// The only level that is enforced.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Denied {
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Allowed {
    Allow,
}

/// A licence that is allowed, for one crate or for all.
struct Permit {
    package: Option<String>,
    licensee: Licensee,
}

/// Lists what is wrong with the packages of the workspace and of `fuzz/`.
pub(crate) fn check(wrong: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    let deny = Deny::parse(&fs::read_to_string(docs::root().join("deny.toml"))?)?;
    let permits = deny.licenses.permits()?;
    for directory in ["", "fuzz/"] {
        let manifest = docs::root().join(directory).join("Cargo.toml");
        let metadata = metadata(&manifest)?;
        for package in &metadata.packages {
            let mut problems = Vec::new();
            problems.extend(license_problem(&permits, &package.name, package.license.as_deref()));
            problems.extend(deny.sources.problem(package, &docs::root()));
            problems.extend(wildcards(&metadata, package));
            let place = format!("{directory}Cargo.lock: {} {}", package.name, package.version);
            wrong.extend(problems.into_iter().map(|problem| format!("{place}: {problem}")));
        }
    }
    Ok(())
}

/// All packages that any feature on any system needs.
fn metadata(manifest: &Path) -> Result<Metadata, Box<dyn Error>> {
    let mut command = MetadataCommand::new();
    command.manifest_path(manifest).features(cargo_metadata::CargoOpt::AllFeatures);
    command.other_options(vec!["--locked".to_owned()]);
    Ok(command.exec()?)
}

impl Deny {
    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| format!("deny.toml: {error}"))
    }
}

impl Licenses {
    fn permits(&self) -> Result<Vec<Permit>, String> {
        let of_all = self.allow.iter().map(|name| (None, name));
        let of_one = (self.exceptions.iter())
            .flat_map(|exception| exception.allow.iter().map(|name| (Some(exception.package.clone()), name)));
        let permit = |(package, name): (Option<String>, &String)| {
            let licensee = Licensee::parse(name).map_err(|error| format!("deny.toml: {name}: {error}"))?;
            Ok(Permit { package, licensee })
        };
        of_all.chain(of_one).map(permit).collect()
    }
}

/// Says why a package with this licence may not be used.
fn license_problem(permits: &[Permit], package: &str, license: Option<&str>) -> Option<String> {
    let Some(license) = license else { return Some("names no licence in its manifest".to_owned()) };
    // Older manifests write `MIT/Apache-2.0`.
    let expression = match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("its licence cannot be read: {error}")),
    };
    let allowed = |permit: &Permit| permit.package.as_deref().is_none_or(|only| only == package);
    let satisfied = expression
        .evaluate(|wanted| permits.iter().any(|permit| allowed(permit) && permit.licensee.satisfies(wanted)));
    (!satisfied).then(|| format!("its licence, {license}, is not allowed by deny.toml"))
}

impl Sources {
    /// Says why a package from its source may not be used.
    fn problem(&self, package: &Package, root: &Path) -> Option<String> {
        match &package.source {
            Some(source) => self.remote_problem(&source.repr),
            None if package.manifest_path.starts_with(root) => None,
            None => Some(format!("is outside of the repository, at {}", package.manifest_path)),
        }
    }

    fn remote_problem(&self, source: &str) -> Option<String> {
        let Sources { unknown_registry: Denied::Deny, unknown_git: Denied::Deny, allow_registry, allow_git } =
            self;
        let is_one_of = |allowed: &[String], url: &str| allowed.iter().any(|allowed| allowed == url);
        let known = match source.split_once('+') {
            Some(("registry" | "sparse", url)) => is_one_of(allow_registry, url),
            // The address is followed by the revision, which is cut off.
            Some(("git", url)) => is_one_of(allow_git, url.split(['?', '#']).next().unwrap_or(url)),
            _ => false,
        };
        (!known).then(|| format!("its source, {source}, is not allowed by deny.toml"))
    }
}

/// Dependencies of the repository's own crates that allow any version.
fn wildcards(metadata: &Metadata, package: &Package) -> Vec<String> {
    if !metadata.workspace_members.contains(&package.id) {
        return Vec::new();
    }
    let others = package.dependencies.iter().filter(|dependency| dependency.path.is_none());
    others.filter_map(|dependency| wildcard_problem(&dependency.name, &dependency.req)).collect()
}

fn wildcard_problem(name: &str, wanted: &VersionReq) -> Option<String> {
    (*wanted == VersionReq::STAR)
        .then(|| format!("any version of {name} will do; name the one that is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The repository's `deny.toml`.
    fn deny() -> Deny {
        Deny::parse(include_str!("../../deny.toml")).unwrap()
    }

    fn refused(package: &str, license: &str) -> bool {
        license_problem(&deny().licenses.permits().unwrap(), package, Some(license)).is_some()
    }

    #[test]
    fn a_licence_that_is_not_listed_is_refused_by_name() {
        let permits = deny().licenses.permits().unwrap();
        assert_eq!(license_problem(&permits, "a", Some("MIT")), None);
        assert_eq!(
            license_problem(&permits, "a", Some("GPL-3.0-only")).unwrap(),
            "its licence, GPL-3.0-only, is not allowed by deny.toml"
        );
        assert_eq!(license_problem(&permits, "a", None).unwrap(), "names no licence in its manifest");
        assert!(refused("a", "whatever you like"));
    }

    #[test]
    fn one_side_of_an_or_is_enough_and_both_of_an_and_are_needed() {
        assert!(!refused("a", "GPL-2.0-only OR MIT"));
        assert!(!refused("a", "MIT/Apache-2.0"));
        assert!(!refused("a", "(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(refused("a", "MIT AND GPL-2.0-only"));
        assert!(refused("a", "GPL-2.0-only OR LGPL-2.1-or-later"));
        assert!(refused("a", "(MIT OR Apache-2.0) AND LGPL-2.1-or-later"));
        // A licence with an exception is a licence of its own.
        assert!(refused("a", "Apache-2.0 WITH LLVM-exception"));
    }

    #[test]
    fn an_exception_is_for_its_crate_alone() {
        assert!(!refused("libfuzzer-sys", "(MIT OR Apache-2.0) AND NCSA"));
        assert!(refused("another", "(MIT OR Apache-2.0) AND NCSA"));
    }

    #[test]
    fn packages_come_from_the_registry_and_never_from_git() {
        let sources = deny().sources;
        assert_eq!(sources.remote_problem("registry+https://github.com/rust-lang/crates.io-index"), None);
        for other in [
            "git+https://github.com/rust-lang/crates.io-index?rev=1#1",
            "git+https://example.com/parquet#0123",
            "registry+https://example.com/index",
            "sparse+https://example.com/index/",
            "path+file:///tmp/x",
        ] {
            let expected = format!("its source, {other}, is not allowed by deny.toml");
            assert_eq!(sources.remote_problem(other), Some(expected));
        }
        let allowed = Sources { allow_git: vec!["https://example.com/parquet".to_owned()], ..sources };
        assert_eq!(allowed.remote_problem("git+https://example.com/parquet?branch=x#0123"), None);
    }

    #[test]
    fn a_dependency_names_the_version_that_is_needed() {
        let problem = |wanted: &str| wildcard_problem("tar", &VersionReq::parse(wanted).unwrap());
        assert_eq!(problem("*").unwrap(), "any version of tar will do; name the one that is needed");
        assert_eq!(problem("0.4.46"), None);
        assert_eq!(problem("0.4.*"), None);
    }

    #[test]
    fn keys_that_nobody_enforces_are_refused() {
        let text = include_str!("../../deny.toml");
        for (from, to) in [
            ("[sources]\n", "[sources]\nprivate = []\n"),
            ("[licenses]\n", "[licenses]\nconfidence-threshold = 0.5\n"),
            ("unknown-git = \"deny\"", "unknown-git = \"warn\""),
            ("wildcards = \"deny\"", "wildcards = \"allow\""),
        ] {
            assert!(text.contains(from));
            assert!(Deny::parse(&text.replace(from, to)).is_err(), "{to}");
        }
        let unknown = text.replace("\"Zlib\"", "\"Zzlib\"");
        assert!(Deny::parse(&unknown).unwrap().licenses.permits().is_err());
    }
}
