//! Which kernel an answer is reckoned for, and why.

use lotsfree_formulas::Rules;

use crate::check::{self, SizeError};

/// What says which kernel's rules apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelBy {
    /// The option `--kernel`.
    Option,
    /// The release that the host or the saved source tells.
    Release,
    /// The source does not name its kernel, but its `/proc/meminfo` lacks a line that newer ones print.
    Lines {
        /// The line.
        lacks: &'static str,
    },
    /// Nothing: the newest rules are taken. `sourced` where a source was read.
    Nothing {
        /// Whether a host or a saved source was read.
        sourced: bool,
    },
}

/// The name of the rules that are nearest to a release: the oldest of all for one that is older still.
pub fn nearest_rules(release: &str) -> &'static str {
    Rules::of_release(release).unwrap_or(Rules::rhel_6()).name
}

/// The sentence that says which kernel the arithmetic assumes.
///
/// # Errors
///
/// As [`crate::Question::answer`] for a kernel that is not known.
pub fn reckoned_for(kernel: Option<&str>, by: &KernelBy) -> Result<String, SizeError> {
    let name = check::rules(kernel)?.name;
    let why = match by {
        KernelBy::Option => "as --kernel says".to_owned(),
        KernelBy::Release => format!("the rules for the host's {}", kernel.unwrap_or_default()),
        KernelBy::Lines { lacks } => format!(
            "the newest without {lacks}, which the source's meminfo does not have; the source does not name its kernel, \
             --kernel RELEASE does"
        ),
        KernelBy::Nothing { sourced: true } => {
            "the newest: the source does not tell its kernel, --kernel RELEASE does".to_owned()
        }
        KernelBy::Nothing { sourced: false } => "the newest; --kernel RELEASE takes another".to_owned(),
    };
    Ok(format!("Reckoned for {name}, {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_is_older_than_every_tree_gets_the_oldest_rules() {
        assert_eq!(nearest_rules("2.6.31"), "linux-2.6.32-rhel6");
        assert_eq!(nearest_rules("3.13"), "linux-3.10");
        assert_eq!(nearest_rules("6.0"), "linux-5.15");
    }

    #[test]
    fn the_sentence_says_which_rules_and_why() {
        let said = |kernel, by| reckoned_for(kernel, &by).unwrap();
        assert_eq!(said(Some("3.10.0"), KernelBy::Option), "Reckoned for linux-3.10, as --kernel says.");
        assert_eq!(
            said(Some("6.12.43+deb13-amd64"), KernelBy::Release),
            "Reckoned for linux-6.12, the rules for the host's 6.12.43+deb13-amd64."
        );
        assert_eq!(
            said(None, KernelBy::Nothing { sourced: false }),
            "Reckoned for linux-6.12, the newest; --kernel RELEASE takes another."
        );
    }
}
