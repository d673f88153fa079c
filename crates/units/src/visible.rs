//! Other people's text, made safe to look at.
//!
//! Names of processes, control groups, variants and files hold whatever their owners like: what would move a
//! terminal's cursor, change its colours, or reorder what is read. Everything that is printed goes through
//! here.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with everything spelled out (`\x1b`, `\u{202e}`) that would move a terminal's cursor, change its
/// colours or reorder what is read. Line ends stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_hidden(c) && u32::from(c) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if is_hidden(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// [`visible`] in one line: line ends become `\n`. For commands, where a line end would run what follows it,
/// and for messages, where it would begin another one.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    match visible(text) {
        line if line.contains('\n') => Cow::Owned(line.replace('\n', "\\n")),
        line => line,
    }
}

/// JSON with the same characters written as `\u009b`: the same document, for eyes as well. Outside of strings
/// JSON has none of them, but for line ends, which strings have not.
pub fn visible_json(json: String) -> String {
    if !json.contains(is_hidden) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        // Between members tabs and carriage returns are white space; in strings they are escaped already.
        if !is_hidden(c) || matches!(c, '\t' | '\r') {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

/// Control characters other than the line end, line and paragraph separators, directional overrides and
/// marks, and characters without width.
fn is_hidden(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_or_reorders_text_is_spelled_out() {
        assert_eq!(visible("a\u{1b}[31m\u{9b}31m\u{7f}\tb\nc"), "a\\x1b[31m\\x9b31m\\x7f\\tb\nc");
        assert_eq!(visible("\u{202e}\u{2066}\u{2028}"), "\\u{202e}\\u{2066}\\u{2028}");
        assert_eq!(visible_line("a\r\nb"), "a\\r\\nb");
        assert!(matches!(visible("größer – 3\u{a0}MiB"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_the_same_document() {
        let hostile: String = (0..0x1_0000).chain(0xe_0000..0xe_0080).filter_map(char::from_u32).collect();
        let value = serde_json::json!({ hostile.clone(): [hostile, "plain"] });
        let json = visible_json(serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
        assert_eq!(json.chars().filter(|&c| is_hidden(c)).count(), 0);
        assert!(json.contains("\\u009b") && json.contains("\\u202e") && json.contains("\\udb40\\udc01"));
    }
}
