//! `events/*/*/format` of tracefs: where the fields of a tracepoint's record are.

use crate::file::scan::{decimal, lines};

/// Where the fields of a tracepoint's record are. They move between releases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFormat {
    fields: Vec<(Box<str>, Place)>,
}

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    offset: usize,
    size: usize,
}

/// Bytes of the longest record that is believed.
const MOST_RECORD: u64 = 1 << 16;

impl TraceFormat {
    /// Reads the lines `field:TYPE NAME; offset:N; size:N; signed:N;`, and skips all others.
    pub fn parse(text: &[u8]) -> Self {
        let fields = lines(text).filter_map(|(_, line)| field(line.trim_ascii())).collect();
        TraceFormat { fields }
    }

    /// Where the field of this name is, if the record has it.
    pub fn field(&self, name: &str) -> Option<Place> {
        self.fields.iter().find(|(known, _)| **known == *name).map(|(_, place)| *place)
    }
}

impl Place {
    /// The number that a record has in this field, in the machine's byte order; `None` if the record is too
    /// short or the field is no number.
    pub fn number(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset + self.size)?;
        match bytes {
            [one] => Some(u64::from(*one)),
            _ if bytes.len() == 2 => Some(u64::from(u16::from_ne_bytes(bytes.try_into().ok()?))),
            _ if bytes.len() == 4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
            _ if bytes.len() == 8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// The text that a record has in this field, up to its first NUL.
    pub fn text(self, record: &[u8]) -> Option<String> {
        let bytes = record.get(self.offset..self.offset + self.size)?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

fn field(line: &[u8]) -> Option<(Box<str>, Place)> {
    let mut parts = line.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let declaration = std::str::from_utf8(parts.next()?.strip_prefix(b"field:")?).ok()?;
    // `char prev_comm[16]` has its length behind the name.
    let name = declaration.rsplit(' ').next()?.split('[').next()?;
    let mut number = |key: &[u8]| {
        let value = decimal(parts.next()?.strip_prefix(key)?)?;
        (value <= MOST_RECORD).then_some(value as usize)
    };
    let (offset, size) = (number(b"offset:")?, number(b"size:")?);
    Some((name.into(), Place { offset, size }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SWITCH: &[u8] = b"name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\n\
        print fmt: \"prev_comm=%s\", REC->prev_comm\n";

    #[test]
    fn fields_are_read_where_the_format_says() {
        let format = TraceFormat::parse(SWITCH);
        let mut record = vec![0; 40];
        record[8..16].copy_from_slice(b"postgres");
        record[24..28].copy_from_slice(&77u32.to_ne_bytes());
        record[32..40].copy_from_slice(&2u64.to_ne_bytes());
        assert_eq!(format.field("prev_comm").unwrap().text(&record).as_deref(), Some("postgres"));
        assert_eq!(format.field("prev_pid").unwrap().number(&record), Some(77));
        assert_eq!(format.field("prev_state").unwrap().number(&record), Some(2));
        assert_eq!(format.field("prev_state").unwrap().number(&record[..36]), None);
        assert_eq!(format.field("next_pid"), None);
    }

    proptest! {
        #[test]
        fn survives_random_bytes(text in prop::collection::vec(any::<u8>(), 0..400)) {
            TraceFormat::parse(&text);
        }

        #[test]
        fn no_length_is_believed_beyond_the_record(offset in any::<u64>(), size in any::<u64>()) {
            let line = format!("field:int a;\toffset:{offset};\tsize:{size};\tsigned:0;");
            if let Some(place) = TraceFormat::parse(line.as_bytes()).field("a") {
                place.number(&[0; 16]);
                place.text(&[0; 16]);
            }
        }
    }
}
