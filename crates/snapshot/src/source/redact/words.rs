//! Lists of words that may stay, and [`keep_words`], which replaces all other words of a line.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

use super::names::Names;

/// Words that may stay. A run of digits in a word is written `#`.
#[derive(Debug)]
pub(super) struct Words {
    texts: &'static [&'static str],
    set: OnceLock<HashSet<&'static str>>,
}

impl Words {
    /// The words of `texts`, between white space.
    pub(super) const fn new(texts: &'static [&'static str]) -> Self {
        Words { texts, set: OnceLock::new() }
    }

    /// Whether `word` may stay.
    pub(super) fn has(&self, word: &str) -> bool {
        self.set().contains(word) || self.set().contains(&*normalized(word))
    }

    /// The words as they are written.
    pub(super) fn all(&self) -> impl Iterator<Item = &'static str> {
        self.texts.iter().flat_map(|text| text.split_ascii_whitespace())
    }

    fn set(&self) -> &HashSet<&'static str> {
        self.set.get_or_init(|| self.all().collect())
    }
}

/// The word with each run of digits written `#`.
pub(super) fn normalized(word: &str) -> Cow<'_, str> {
    if !word.bytes().any(|b| b.is_ascii_digit()) {
        return Cow::Borrowed(word);
    }
    let mut out = String::with_capacity(word.len());
    for c in word.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            '#' => out.push('?'),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// Whether a word is a number as the kernel prints it: with a sign, a point or a per cent sign, as a range of
/// two, or in hexadecimal after `0x`.
pub(super) fn is_number(word: &str) -> bool {
    if let Some(hex) = word.strip_prefix("0x") {
        return is_hex(hex);
    }
    let word = word.strip_prefix(['-', '+']).unwrap_or(word);
    let word = word.strip_suffix('%').unwrap_or(word);
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(|c: char| c.is_ascii_digit())
        && word.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'))
}

/// Whether a word consists of decimal digits.
pub(super) fn is_decimal(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a word consists of hexadecimal digits, of 64 bits at most.
pub(super) fn is_hex(word: &str) -> bool {
    (1..=16).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a word is a number with a unit of size or time after it, such as `64G`, `1024k` or `60%`.
pub(super) fn is_size(word: &str) -> bool {
    is_number(word) || word.strip_suffix(|c: char| "kKmMgGtTpPB".contains(c)).is_some_and(is_number)
}

/// Replaces every word of the line that is neither a number nor in one of `lists`. White space and
/// punctuation stay unchanged.
pub(super) fn keep_words(line: &str, lists: &[&Words], names: &mut Names) -> String {
    let known = |word: &str| lists.iter().any(|list| list.has(word));
    let mut out = String::with_capacity(line.len());
    for (chunk, is_word) in pieces(line, |c| !c.is_ascii_whitespace()) {
        // `Active(anon):` is a name followed by a colon.
        if !is_word || known(chunk) || known(chunk.trim_end_matches([':', ','])) {
            out.push_str(chunk);
            continue;
        }
        for (part, is_word) in pieces(chunk, |c| !"()[]{}<>,:;=/|".contains(c)) {
            let mark = part.bytes().all(|b| b.is_ascii_punctuation());
            if !is_word || mark || is_number(part) || known(part) {
                out.push_str(part);
            } else {
                out.push_str(&names.token("word", part));
            }
        }
    }
    out
}

/// Splits a text into runs of characters for which `inside` is true and runs for which it is not.
fn pieces(text: &str, inside: impl Fn(char) -> bool) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_inside = inside(rest.chars().next()?);
        let end = rest.find(|c| inside(c) != is_inside).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some((piece, is_inside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_listed_words_stay() {
        static LIST: Words = Words::new(&["Node zone cpu# Active(anon)", "kB"]);
        let mut names = Names::default();
        let mut kept = |line: &str| keep_words(line, &[&LIST], &mut names);
        let plain = "Node 0, zone  cpu12: 1.5 -3 0-7 0x1f Active(anon): 12 kB (0, 7)";
        assert_eq!(kept(plain), plain);
        assert_eq!(
            kept("Node acme, 12acme cpu12acme zone(acme) 0xacme é"),
            "Node word1, word2 word3 zone(word1) word4 word5"
        );
    }

    #[test]
    fn digits_count_as_one_sign() {
        assert_eq!(normalized("nvme0n12p3"), "nvme#n#p#");
        assert_eq!(normalized("sda"), "sda");
        // A `#` in the word itself is not taken for a run of digits.
        assert_eq!(normalized("a#b1"), "a?b#");
    }
}
