//! The text archive: many small files in one that a person can read and `git diff` can show.
//!
//! Free text first, the provenance. Then, for each file, a header line `-- PATH --` and its content up to the
//! next header or the end. A path is relative to the root of the captured tree, below one directory per
//! sample: `0s/proc/meminfo`, `5s/proc/meminfo`. A sample after the first has only the files that change.
//!
//! Content is kept verbatim, with two exceptions. Content that does not end with a newline gains one. A line
//! that a reader would take for a header, or for an escaped one, is escaped by one backslash: that is a line
//! that begins with `-- ` and ends with ` --`, and any line that begins with one or more backslashes and
//! then `-- `. A reader removes one backslash from a line that begins with backslashes and then `-- `.

use std::fmt;

/// An archive larger than this, in bytes, is refused: fixtures are read by people.
pub(super) const SIZE_LIMIT: usize = 250_000;

/// Captured files, in the order in which they were read, and where they come from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Archive {
    /// Free text, no line of which is a header. Ends with a newline.
    pub provenance: String,
    /// Path below the sample's directory, and content.
    pub files: Vec<File>,
}

/// One file of one sample.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    /// `0s/proc/meminfo`.
    pub path: String,
    /// Empty, or ends with a newline.
    pub content: String,
}

impl Archive {
    /// Content of a file, by its whole path.
    pub(super) fn get(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.content.as_str())
    }

    /// Reads an archive. Text before the first header is provenance; a path that occurs twice is an error.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut archive = Self::default();
        for line in text.split_inclusive('\n') {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            if let Some(path) = header(bare) {
                if archive.get(path).is_some() {
                    return Err(format!("{path} occurs twice"));
                }
                archive.files.push(File { path: path.to_owned(), content: String::new() });
            } else if let Some(file) = archive.files.last_mut() {
                file.content.push_str(if is_escaped(bare) { &line[1..] } else { line });
            } else {
                archive.provenance.push_str(line);
            }
        }
        Ok(archive)
    }
}

impl fmt::Display for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.provenance)?;
        for file in &self.files {
            writeln!(f, "-- {} --", file.path)?;
            for line in file.content.lines() {
                let escape = if header(line).is_some() || is_escaped(line) { "\\" } else { "" };
                writeln!(f, "{escape}{line}")?;
            }
        }
        Ok(())
    }
}

/// The path of a header line.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("-- ")?.strip_suffix(" --")
}

fn is_escaped(line: &str) -> bool {
    line.starts_with('\\') && line.trim_start_matches('\\').starts_with("-- ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_content_reads_back() {
        let contents = [
            "",
            "\n",
            "one\ntwo\n",
            "-- proc/meminfo --\n",
            "\\-- proc/meminfo --\n",
            "\\\\\\-- x\n\\-- x --\n",
            "-- not a header\n\\ nor an escape\n\\--x\n--  --\n",
        ];
        let files = contents.iter().enumerate().map(|(number, content)| File {
            path: format!("0s/proc/{number}"),
            content: (*content).to_owned(),
        });
        let archive = Archive { provenance: "# what\n".to_owned(), files: files.collect() };
        assert_eq!(Archive::parse(&archive.to_string()), Ok(archive));
    }

    #[test]
    fn header_like_content_is_escaped_as_documented() {
        let file = File { path: "a".to_owned(), content: "-- b --\n-- c\n\\-- d\n".to_owned() };
        let archive = Archive { provenance: String::new(), files: vec![file] };
        assert_eq!(archive.to_string(), "-- a --\n\\-- b --\n-- c\n\\\\-- d\n");
    }

    #[test]
    fn a_path_twice_is_an_error() {
        assert_eq!(Archive::parse("-- a --\n-- b --\n-- a --\n"), Err("a occurs twice".to_owned()));
    }
}
