//! The list of System V segments that `ipcs -m` prints, in any language.
//!
//! ```text
//! ------ Shared Memory Segments --------
//! key        shmid      owner      perms      bytes      nattch     status
//! 0x00000000 98305      oracle     640        8592031744 45
//! ```
//!
//! Titles and heads are translated, so a segment is told by the shape of its line: a key in hexadecimal, then
//! numbers. The sizes alone, one a line, are what Oracle's script (MOS 401749.1) cuts out of that; they are
//! read, too.

use lotsfree_units::Bytes;

/// A segment of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Identifier; `None` where only the sizes were given.
    pub shmid: Option<u64>,
    /// Size in bytes.
    pub size: Bytes,
    /// Number of attached processes; `None` where only the sizes were given.
    pub nattch: Option<u64>,
}

/// Why a text is not the output of `ipcs -m`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpcsError {
    /// A line is none of a segment.
    #[error("line {line}: {what}; what is read is the output of ipcs -m, or its bytes column alone")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// There is no segment in it.
    #[error(
        "there is no segment in it; what is read is the output of ipcs -m while every instance runs, without AMM"
    )]
    Empty,
}

/// What is listed under a title.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Not told yet, or by nothing but its lines.
    Unknown,
    /// Shared memory: the head names `shmid`.
    Segments,
    /// Message queues or semaphores, which plain `ipcs` lists as well.
    Others(usize),
}

/// Reads the output of `ipcs -m`.
///
/// # Errors
/// [`IpcsError`] with the number of the first line that is neither a title, a head nor a segment.
pub fn ipcs(text: &str) -> Result<Vec<Listed>, IpcsError> {
    let mut found = Vec::new();
    let mut section = Section::Unknown;
    let mut others = None;
    // A head may stand at the top and below each title.
    let mut head_allowed = true;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.first() else { continue };
        if first.starts_with("---") {
            (section, head_allowed) = (Section::Unknown, true);
            continue;
        }
        if head_allowed && is_head(&words) {
            section = section_of(&words, number)?;
            head_allowed = false;
            continue;
        }
        head_allowed = false;
        match section {
            Section::Others(line) => others = others.or(Some(line)),
            Section::Unknown | Section::Segments => {
                found.push(segment(&words).map_err(|what| IpcsError::Line { line: number, what })?)
            }
        }
    }
    match (found.is_empty(), others) {
        (false, _) => Ok(found),
        (true, Some(line)) => Err(IpcsError::Line {
            line,
            what: "this is the head of message queues or semaphores, and no shared memory is listed"
                .to_owned(),
        }),
        (true, None) => Err(IpcsError::Empty),
    }
}

/// Whether a line is the head of a table: no number and no key among its words.
fn is_head(words: &[&str]) -> bool {
    words.len() > 1
        && !words.contains(&"=")
        && !words.iter().any(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// What a head says of the lines below it. Names of identifiers are not translated.
fn section_of(words: &[&str], line: usize) -> Result<Section, IpcsError> {
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    if has("msqid") || has("semid") {
        return Ok(Section::Others(line));
    }
    let option = [("cuid", "-c"), ("cpid", "-p"), ("attached", "-t")];
    if let Some((name, option)) = option.iter().find(|(name, _)| has(name)) {
        let what = format!("a list with {name} is that of ipcs -m {option}, which has no sizes");
        return Err(IpcsError::Line { line, what });
    }
    Ok(if has("shmid") { Section::Segments } else { Section::Unknown })
}

/// The segment of a line, or what is wrong with it.
fn segment(words: &[&str]) -> Result<Listed, String> {
    let shown = || -> String { words.join(" ").chars().take(60).collect() };
    match words {
        [size] if is_number(size) => Ok(Listed { shmid: None, size: bytes(size)?, nattch: None }),
        [key, shmid, _owner, perms, size, nattch, ..] if key.starts_with("0x") => {
            let nattch = nattch.parse();
            match (shmid.parse(), u32::from_str_radix(perms, 8), nattch) {
                (Ok(shmid), Ok(_), Ok(nattch)) => {
                    Ok(Listed { shmid: Some(shmid), size: bytes(size)?, nattch: Some(nattch) })
                }
                _ => Err(format!("{:?} has a key, but not shmid, owner, perms, bytes and nattch", shown())),
            }
        }
        [key, ..] if key.starts_with("0x") => {
            Err(format!("{:?} is cut off: a segment has key, shmid, owner, perms, bytes and nattch", shown()))
        }
        words if words.contains(&"=") => Err(format!("{:?} is a limit, as ipcs -lm prints them", shown())),
        [] | [_, ..] => Err(format!("{:?} is no segment", shown())),
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_digit())
}

/// The bytes column.
fn bytes(word: &str) -> Result<Bytes, String> {
    if !is_number(word) {
        return Err(format!("the size {word:?} is not in bytes (ipcs --human?)"));
    }
    word.parse().map(Bytes).map_err(|_| format!("the size {word} exceeds what 64 bits hold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: &str = "
------ Shared Memory Segments --------
key        shmid      owner      perms      bytes      nattch     status
0x00000000 98305      oracle     640        8592031744 45
0x1c3f5a88 131074     oracle     640        1612709888 45         dest
";

    fn sizes(text: &str) -> Vec<u64> {
        ipcs(text).unwrap().iter().map(|listed| listed.size.0).collect()
    }

    fn error(text: &str) -> String {
        ipcs(text).unwrap_err().to_string()
    }

    #[test]
    fn the_bytes_column_is_read_in_any_language() {
        assert_eq!(sizes(ENGLISH), [8_592_031_744, 1_612_709_888]);
        let segment = Listed { shmid: Some(98_305), size: Bytes(8_592_031_744), nattch: Some(45) };
        assert_eq!(ipcs(ENGLISH).unwrap()[0], segment);
        let row = "0x00000000 98305      oracle     640        8592031744 45         zerstört\n";
        for head in [
            "------ Gemeinsamer Speicher: Segmente --------\nSchlüssel  shmid      Besitzer   Rechte     Bytes      nattch     Status\n",
            "------ 共享内存段 --------------\n键        shmid      拥有者  权限     字节     连接数  状态\n",
            "------ Segment de mémoire partagée --------\nclef       shmid      propriétaire perms      octets     nattch     états\n",
            "",
        ] {
            assert_eq!(sizes(&format!("{head}{row}")), [8_592_031_744], "{head}");
        }
    }

    #[test]
    fn the_column_that_oracles_script_cuts_out_is_read() {
        assert_eq!(sizes("8592031744\n1612709888\n"), [8_592_031_744, 1_612_709_888]);
    }

    #[test]
    fn queues_and_semaphores_of_plain_ipcs_are_not_segments() {
        let all = format!(
            "\n------ Message Queues --------\nkey        msqid      owner      perms      used-bytes   messages    \n\
             0x00000001 5          root       644        0            0           \n{ENGLISH}\n\
             ------ Semaphore Arrays --------\nkey        semid      owner      perms      nsems     \n\
             0x00000002 7          oracle     640        154       \n"
        );
        assert_eq!(sizes(&all), [8_592_031_744, 1_612_709_888]);
        let queues =
            "------ Message Queues --------\nkey msqid owner perms used-bytes messages\n0x1 5 root 644 0 0\n";
        assert!(error(queues).starts_with("line 2: this is the head of message queues or semaphores"));
    }

    #[test]
    fn other_lists_are_refused_with_the_line() {
        for (text, expected) in [
            (
                "------ Shared Memory Limits --------\nmax number of segments = 4096\n",
                "line 2: \"max number of segments = 4096\" is a limit, as ipcs -lm prints them",
            ),
            (
                "------ Shared Memory Attach/Detach/Change Times --------\nshmid owner attached detached changed\n",
                "line 2: a list with attached is that of ipcs -m -t",
            ),
            (
                "------ Shared Memory Status --------\nsegments allocated 2\npages allocated 5\n",
                "line 2: \"segments allocated 2\" is no segment",
            ),
            ("0x0 1 oracle 640 8G 45\n", "line 1: the size \"8G\" is not in bytes (ipcs --human?)"),
            ("0x0 1 oracle 640\n", "line 1: \"0x0 1 oracle 640\" is cut off"),
            ("0x0 1 my user 640 4096 45\n", "line 1: \"0x0 1 my user 640 4096 45\" has a key, but not"),
            ("0x0 1 oracle 640 99999999999999999999 45\n", "line 1: the size 99999999999999999999 exceeds"),
            ("the quick brown fox\njumps\n", "line 2: \"jumps\" is no segment"),
            (
                "m 65536 0x4f5f --rw-rw---- oracle\n",
                "line 1: \"m 65536 0x4f5f --rw-rw---- oracle\" is no segment",
            ),
        ] {
            let said = error(text);
            assert!(said.starts_with(expected), "{said}");
            assert!(
                said.ends_with("what is read is the output of ipcs -m, or its bytes column alone"),
                "{said}"
            );
        }
        for text in
            ["", "\n------ Shared Memory Segments --------\nkey shmid owner perms bytes nattch status\n"]
        {
            assert!(error(text).starts_with("there is no segment in it;"));
        }
    }
}
