//! Records of a CSV trace.

use super::{Access, Column};

/// What the columns of a table are.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    columns: Vec<Column>,
    pub(crate) header: bool,
    pub(crate) delimiter: u8,
}

impl Shape {
    pub(crate) fn new(columns: &[Column], header: bool, delimiter: u8) -> Shape {
        Shape { columns: columns.to_vec(), header, delimiter }
    }

    /// Reads a record, or says what is wrong with it.
    pub(crate) fn access(&self, record: &csv::ByteRecord) -> Result<Access, String> {
        let mut access = Access::default();
        for (i, column) in self.columns.iter().enumerate() {
            if *column == Column::Skip {
                continue;
            }
            let Some(field) = record.get(i) else {
                return Err(format!("it has {}, and column {} is missing", columns(record.len()), i + 1));
            };
            let field = field.trim_ascii();
            let wrong = |what: &str| {
                let text: String = String::from_utf8_lossy(field).chars().take(40).collect();
                format!("column {}: {text:?} is not {what}", i + 1)
            };
            let number = |what: &str| whole(field).ok_or_else(|| wrong(what));
            match column {
                Column::Page => access.place = number("the number of a page")?,
                Column::Object => access.place = number("the number of an object")?,
                Column::Size => access.size = number("a size in bytes")?,
                Column::Time => access.time = number("a whole number of time units")?,
                Column::Op => {
                    let is =
                        |names: [&str; 3]| names.iter().any(|n| field.eq_ignore_ascii_case(n.as_bytes()));
                    access.write = Some(match () {
                        () if is(["r", "read", "get"]) => false,
                        () if is(["w", "write", "set"]) => true,
                        () => return Err(wrong("r, read, get, w, write or set")),
                    });
                }
                Column::Skip => {}
            }
        }
        Ok(access)
    }
}

fn columns(count: usize) -> String {
    if count == 1 { "1 column".to_owned() } else { format!("{count} columns") }
}

/// A number of digits alone, below 2⁶⁴.
fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}
