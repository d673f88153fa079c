//! Rows of tables that a mail program or a terminal wrapped, joined again: those of `free`, `vmstat` and
//! `top`.

/// Columns of `vmstat`, where its second heading is missing.
const VMSTAT: &str = "r b swpd free buff cache si so bi bo in cs us sy id wa";
/// A line that is longer than this was not wrapped.
const MOST: usize = 512;

/// Joins rows that were wrapped; all other lines stay as they are.
pub(super) fn joined(lines: Vec<String>) -> Vec<String> {
    if !lines.iter().any(|line| opens(line)) {
        return lines;
    }
    let mut out: Vec<String> = Vec::with_capacity(lines.len());
    let mut table = Table::None;
    let mut lines = lines.into_iter().peekable();
    while let Some(mut line) = lines.next() {
        table = table.after(&line);
        // The first row of a table whose column names are missing.
        if table == Table::Vmstat(0) && numbers(&line) == Some(line.split_ascii_whitespace().count()) {
            out.push(VMSTAT.to_owned());
            table = Table::Vmstat(VMSTAT.split(' ').count());
        }
        while let Some(next) =
            lines.next_if(|next| line.len() + next.len() < MOST && table.joins(&line, next))
        {
            line.push(' ');
            line.push_str(next.trim());
        }
        table = table.headed(&line);
        out.push(line);
    }
    out
}

/// Whether a line begins a table that is looked after.
fn opens(line: &str) -> bool {
    let has = |text| line.contains(text);
    has("procs ") && has("--memory")
        || has("total") && has("used") && has("free")
        || has("PID") && has("USER")
        || line.starts_with("Device")
}

/// The table that a line stands in.
#[derive(Clone, Copy, PartialEq)]
enum Table {
    None,
    /// With so many columns, 0 while they are not known.
    Vmstat(usize),
    Free(usize),
    Top,
    /// Devices of iostat, with so many columns.
    Devices(usize),
}

impl Table {
    /// The table that `line` opens, else the one that was open.
    fn after(self, line: &str) -> Table {
        let words: Vec<&str> = line.split_ascii_whitespace().take(24).collect();
        match words[..] {
            ["procs", ..] if line.contains("--memory") => Table::Vmstat(0),
            ["total", "used", "free", ..] => Table::Free(0),
            ["PID", "USER", ..] => Table::Top,
            [first, ..] if first.starts_with("Device") => Table::Devices(0),
            _ => self,
        }
    }

    /// The table, with the columns that `line` names.
    fn headed(self, line: &str) -> Table {
        let words = || line.split_ascii_whitespace();
        match self {
            Table::Vmstat(0) if words().next() == Some("r") => Table::Vmstat(words().count()),
            Table::Free(0) if words().next() == Some("total") => Table::Free(words().count()),
            Table::Devices(0) if words().last() == Some("%util") => Table::Devices(words().count()),
            table => table,
        }
    }

    /// Whether `next` goes on with the row, or the heading, that `line` begins.
    fn joins(self, line: &str, next: &str) -> bool {
        let (have, more) = (line.split_ascii_whitespace().count(), next.split_ascii_whitespace().count());
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if more == 0 {
            return false;
        }
        match self {
            Table::None => false,
            Table::Vmstat(0) => {
                first == "r" && all(next, &["so", "bi", "bo", "in", "cs", "us", "sy", "id", "wa", "st", "gu"])
            }
            Table::Vmstat(columns) => {
                numbers(line) == Some(have)
                    && numbers(next) == Some(more)
                    && have < columns
                    && have + more <= columns
            }
            Table::Free(0) => {
                first == "total" && all(next, &["shared", "buffers", "cached", "buff/cache", "available"])
            }
            Table::Free(columns) => {
                first == "Mem:"
                    && numbers(next) == Some(more)
                    && have <= columns
                    && have - 1 + more <= columns
            }
            Table::Devices(0) => {
                first.starts_with("Device") && !line.contains("%util") && next.contains("%util")
            }
            Table::Devices(columns) => {
                let figures = |line: &str, from: usize| {
                    line.split_ascii_whitespace().skip(from).all(|word| word.parse::<f64>().is_ok())
                };
                have > 1 && figures(line, 1) && figures(next, 0) && have < columns && have + more <= columns
            }
            Table::Top => {
                first.bytes().all(|b| b.is_ascii_digit())
                    && ends_in_time(line)
                    && more <= 2
                    && numbers(next).is_none()
            }
        }
    }
}

/// Whether all words are of these.
fn all(line: &str, known: &[&str]) -> bool {
    line.split_ascii_whitespace().all(|word| known.contains(&word))
}

/// How many words a line has, if all are figures.
fn numbers(line: &str) -> Option<usize> {
    let figure = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    let words = || line.split_ascii_whitespace();
    (words().next().is_some() && words().all(figure)).then(|| words().count())
}

/// Whether a row ends in top's `TIME+`, before the command.
fn ends_in_time(line: &str) -> bool {
    let last = line.split_ascii_whitespace().last().unwrap_or_default();
    let digits =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
    last.split_once(':').is_some_and(|(minutes, seconds)| digits(minutes) && digits(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        joined(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn rows_of_vmstat() {
        let head = "procs -----------memory---------- ---swap-- -----io---- --system--";
        let rows = of(&format!(
            "{head}\n----cpu----\n r  b swpd free buff cache si so bi bo in cs us\nsy id wa\n 2 0 0 579472 13976 308572 0 0 425 \
             85 1255 645 5\n3 84 9\n 2 0 0 579456 13976 308572 0 0 0 0 725 521 5 5 91 0\n"
        ));
        assert_eq!(rows[2], " r  b swpd free buff cache si so bi bo in cs us sy id wa");
        assert_eq!(rows[3], " 2 0 0 579472 13976 308572 0 0 425 85 1255 645 5 3 84 9");
        assert_eq!(rows.len(), 5);
        // Without column names.
        let rows = of(&format!("{head}\n0 0 0 49932 4760 1392980 0 0 15636\n32 3169 3697 4 6 30 60\n"));
        assert_eq!(rows[1..], [VMSTAT, "0 0 0 49932 4760 1392980 0 0 15636 32 3169 3697 4 6 30 60"]);
    }

    #[test]
    fn rows_of_free() {
        let rows = of(
            "   total used free shared\nbuffers cached\nMem: 2075260 2024724 50536\n0\n 5184 1388408\n-/+ buffers/cache: 631132 1444128\n",
        );
        assert_eq!(rows[0], "   total used free shared buffers cached");
        assert_eq!(rows[1], "Mem: 2075260 2024724 50536 0 5184 1388408");
        assert_eq!(rows[2], "-/+ buffers/cache: 631132 1444128");
    }

    #[test]
    fn commands_of_top() {
        let head = "  PID USER PR NI VIRT RES SHR S %CPU %MEM TIME+ COMMAND";
        let rows = of(&format!(
            "{head}\n360 root 20 0 0 0 0 R 99.9 0.0 283:13.38\nkworker/u8:2+fl\n1 root 20 0 43784 5592 3936 S 0.0 0.1 0:08.64 systemd\n"
        ));
        assert_eq!(rows[1], "360 root 20 0 0 0 0 R 99.9 0.0 283:13.38 kworker/u8:2+fl");
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn devices_of_iostat() {
        let rows = of(
            "Device: r/s w/s rkB/s\nawait svctm %util\nrd/c0d0 0.00 84389.83 0.00\n3.00 1.20 99.54\nsda 1 2 3 4 5 6\n",
        );
        assert_eq!(rows[1], "rd/c0d0 0.00 84389.83 0.00 3.00 1.20 99.54");
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn other_lines_stay() {
        let text =
            "total used free\nnothing\n1 2 3\nprocs --memory--\nr b\n1 2\n\nPID USER\n7 x 0:01\n\nend\n";
        assert_eq!(of(text).join("\n") + "\n", text);
    }
}
