//! Pictures, drawn as inline SVG.
//!
//! Plotting crates write colours into every element, so that a picture cannot follow the reader's light or
//! dark page. Here shapes carry classes and the page's style sheet gives them the palette's colours. A
//! picture is drawn for a width in CSS pixels and shown at that width at most, so that its text keeps its
//! size; a page that is read on phones draws it twice. Widths of texts are estimated on the wide side: a
//! label that might not fit is left out, never overlapped (the table beside a picture has all figures).

use std::fmt::Write;

use lotsfree_units::{Bytes, GIB, KIB, MIB, TIB};

/// Height of a line of text.
pub(crate) const LINE: f64 = 16.0;
/// Mean width of a letter of the 13 px sans-serif that labels are set in, wide fonts included.
const LETTER: f64 = 7.2;

/// Width of `text` in a label; at most so much.
pub(crate) fn text_width(text: &str) -> f64 {
    unicode_width::UnicodeWidthStr::width(text) as f64 * LETTER
}

/// A picture being drawn.
#[derive(Debug)]
pub(crate) struct Svg {
    body: String,
    width: f64,
}

/// Where a text is anchored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// An empty picture, `width` CSS pixels wide.
    pub(crate) fn new(width: f64) -> Self {
        Svg { body: String::new(), width }
    }

    /// A filled rectangle.
    pub(crate) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
    }

    /// A rectangle that says what it is when it is pointed at.
    pub(crate) fn rect_with_title(
        &mut self,
        class: &str,
        (x, y, width, height): (f64, f64, f64, f64),
        title: &str,
    ) {
        let title = escaped(title);
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"><title>{title}</title></rect>"#
        );
    }

    /// A filled circle.
    pub(crate) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        let _ = write!(self.body, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"/>"#);
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    /// A closed shape.
    pub(crate) fn area(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        self.path(class, points, "Z");
    }

    /// A line through points.
    pub(crate) fn polyline(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        self.path(class, points, "");
    }

    fn path(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>, end: &str) {
        let _ = write!(self.body, r#"<path class="{class}" d=""#);
        let mut before: Option<(String, String)> = None;
        for (x, y) in points {
            let (x, y) = (short(x), short(y));
            let _ = match &before {
                None => write!(self.body, "M{x} {y}"),
                Some((_, same)) if *same == y => write!(self.body, "H{x}"),
                Some((same, _)) if *same == x => write!(self.body, "V{y}"),
                Some(_) => write!(self.body, "L{x} {y}"),
            };
            before = Some((x, y));
        }
        let _ = write!(self.body, r#"{end}"/>"#);
    }

    /// A text; `y` is its base line.
    pub(crate) fn text(&mut self, class: &str, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        let _ = write!(
            self.body,
            r#"<text class="{class}" text-anchor="{anchor}" x="{x:.1}" y="{y:.1}">{text}</text>"#
        );
    }

    /// The element, `height` CSS pixels high. `id` is unique in the page; `title` and `description` are what
    /// a screen reader says of it.
    pub(crate) fn finish(self, height: f64, id: &str, title: &str, description: &str) -> String {
        let (title, description, width) = (escaped(title), escaped(description), self.width);
        format!(
            r#"<svg role="img" aria-labelledby="{id}-title {id}-desc" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}"><title id="{id}-title">{title}</title><desc id="{id}-desc">{description}</desc>{}</svg>"#,
            self.body
        )
    }
}

/// A coordinate, to a tenth of a pixel.
fn short(pixels: f64) -> String {
    let text = format!("{pixels:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// For text and attributes of XML. Control characters, which XML forbids, are spelled out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in lotsfree_units::visible_line(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// Maps a quantity from `[low, high]` to pixels from `start` to `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Scale {
    /// A linear scale. An empty domain maps to `start`.
    pub(crate) fn new((low, high): (f64, f64), (start, end): (f64, f64)) -> Self {
        Scale { low, high, start, end }
    }

    /// Where `value` lies; values outside the domain lie at its ends.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.start + share * (self.end - self.start)
    }
}

/// Multiples of `step` from 0 to `high`.
fn multiples(step: f64, high: f64) -> Vec<f64> {
    if !(step > 0.0 && high.is_finite() && high >= 0.0) {
        return vec![0.0];
    }
    // A step is chosen so that there are few; the bound holds whatever the caller does.
    (0..=((high / step + 1e-9).floor() as u32).min(64)).map(|i| f64::from(i) * step).collect()
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`.
fn round_up(least: f64) -> f64 {
    if !(least > 0.0 && least.is_finite()) {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * power)
        .find(|&n| n >= least * 0.999_999)
        .unwrap_or(power * 10.0)
}

/// Round ticks for a count from 0 to at least `high`, at most `most` steps; the last is the axis' end.
pub(crate) fn count_ticks(high: f64, most: u32) -> Vec<f64> {
    let step = round_up(high / f64::from(most.max(1)));
    multiples(step, (high / step).ceil().max(1.0) * step)
}

/// Ticks for bytes from 0 to `high`, a power of two apart in the unit that suits `high`.
pub(crate) fn byte_ticks(high: Bytes, most: u32) -> Vec<Bytes> {
    let unit = match high.0 {
        n if n >= TIB => TIB,
        n if n >= GIB => GIB,
        n if n >= MIB => MIB,
        _ => KIB,
    };
    let least = (high.as_f64() / f64::from(most.max(1)) / unit as f64).max(1.0 / 1024.0);
    // Memory comes in powers of two; so do the ticks.
    let step = 2f64.powf((least - 1e-9).log2().ceil());
    multiples(step * unit as f64, high.as_f64()).into_iter().map(|bytes| Bytes(bytes as u64)).collect()
}

/// Ticks for seconds from 0 to `high`, round on a clock, and the unit that labels are in: its name and its
/// seconds.
pub(crate) fn time_ticks(high: f64, most: u32) -> (Vec<f64>, &'static str, f64) {
    const STEPS: [f64; 22] = [
        1.0,
        2.0,
        5.0,
        10.0,
        15.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        900.0,
        1800.0,
        3600.0,
        7200.0,
        10800.0,
        21600.0,
        43200.0,
        86400.0,
        172_800.0,
        432_000.0,
        864_000.0,
        2_592_000.0,
    ];
    let least = high / f64::from(most.max(1));
    let step =
        STEPS.into_iter().find(|&step| step >= least).unwrap_or_else(|| round_up(least / 86400.0) * 86400.0);
    let step = if least < 0.5 { round_up(least) } else { step };
    let (unit, seconds) = match step {
        s if s >= 86400.0 => ("d", 86400.0),
        s if s >= 3600.0 => ("h", 3600.0),
        s if s >= 60.0 => ("min", 60.0),
        _ if high > 300.0 => ("min", 60.0),
        _ => ("s", 1.0),
    };
    (multiples(step, high), unit, seconds)
}

/// A number as a tick shows it: no more digits than it needs.
pub(crate) fn tick_label(value: f64) -> String {
    if value.abs() >= 1000.0 && value == value.trunc() {
        return lotsfree_units::Grouped(value as u64).to_string();
    }
    let text = format!("{value:.2}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.to_owned()
}

/// A label that wants to be near a place on a line.
#[derive(Clone, Debug)]
pub(crate) struct Wish<T> {
    /// Where it wants to be.
    pub(crate) at: f64,
    /// How much room it takes.
    pub(crate) size: f64,
    /// Labels with a greater weight are placed first.
    pub(crate) weight: f64,
    /// What it says.
    pub(crate) what: T,
}

/// Places labels between `low` and `high` so that none overlap, each at most `slack` from its wish (farther
/// only where it would stick out), and in the order of their wishes, so that the lines to them do not cross.
/// Heavier labels come first, and move to make room for lighter ones. Returns those that fit, with their
/// centres, and those that do not.
pub(crate) fn place<T>(wishes: Vec<Wish<T>>, (low, high): (f64, f64), slack: f64) -> (Vec<(f64, T)>, Vec<T>) {
    let mut by_weight: Vec<usize> = (0..wishes.len()).collect();
    by_weight.sort_by(|a, b| wishes[*b].weight.total_cmp(&wishes[*a].weight));
    // How far left and right the centre of a label may be.
    let reach = |wish: &Wish<T>| {
        let inside = |centre: f64| centre.max(low + wish.size / 2.0).min(high - wish.size / 2.0);
        (inside(wish.at - slack), inside(wish.at + slack))
    };
    let apart = |a: &Wish<T>, b: &Wish<T>| (a.size + b.size) / 2.0;
    let mut chosen: Vec<usize> = Vec::new();
    for candidate in by_weight {
        let wish = &wishes[candidate];
        if wish.size > high - low || !wish.at.is_finite() {
            continue;
        }
        let position = chosen.partition_point(|&other| (wishes[other].at, other) < (wish.at, candidate));
        chosen.insert(position, candidate);
        // As far left as all can be; do the later ones still reach?
        let mut least = f64::NEG_INFINITY;
        let fits = chosen.iter().enumerate().all(|(i, &index)| {
            let (from, to) = reach(&wishes[index]);
            let after = if i > 0 { least + apart(&wishes[chosen[i - 1]], &wishes[index]) } else { from };
            least = from.max(after);
            least <= to + 1e-6
        });
        if !fits {
            chosen.remove(position);
        }
    }
    // From the right: how far right each may be; then from the left: as near to its wish as the others let
    // it.
    let mut most = vec![0.0; chosen.len()];
    for i in (0..chosen.len()).rev() {
        let own = reach(&wishes[chosen[i]]).1;
        most[i] = match chosen.get(i + 1) {
            Some(&next) => own.min(most[i + 1] - apart(&wishes[chosen[i]], &wishes[next])),
            None => own,
        };
    }
    let mut centres = vec![None; wishes.len()];
    let mut before: Option<(f64, usize)> = None;
    for (i, &index) in chosen.iter().enumerate() {
        let wish = &wishes[index];
        let from = reach(wish).0;
        let least = before.map_or(from, |(centre, other)| from.max(centre + apart(&wishes[other], wish)));
        let centre = wish.at.min(most[i]).max(least);
        centres[index] = Some(centre);
        before = Some((centre, index));
    }
    let (mut placed, mut left) = (Vec::new(), Vec::new());
    for (wish, centre) in wishes.into_iter().zip(centres) {
        match centre {
            Some(centre) => placed.push((centre, wish.what)),
            None => left.push(wish.what),
        }
    }
    (placed, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(count_ticks(37.0, 4), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(count_ticks(21_000.0, 2), [0.0, 20_000.0, 40_000.0]);
        assert_eq!(count_ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(byte_ticks(Bytes::gib(16), 4).last(), Some(&Bytes::gib(16)));
        assert_eq!(byte_ticks(Bytes::gib(4), 4), [0, 1, 2, 3, 4].map(Bytes::gib));
        assert_eq!(byte_ticks(Bytes::mib(1100), 4), [0, 512, 1024].map(Bytes::mib));
        assert_eq!(time_ticks(590.0, 6), (vec![0.0, 120.0, 240.0, 360.0, 480.0], "min", 60.0));
        assert_eq!(time_ticks(5.0, 6).0, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        for high in [0.0, 0.3, 7.0, 1e3, 1e6, 1e9, 1e300, f64::NAN, f64::INFINITY] {
            assert!(time_ticks(high, 6).0.len() <= 65 && count_ticks(high, 4).len() <= 65, "{high}");
        }
        assert!(byte_ticks(Bytes(u64::MAX), 4).len() <= 65 && !byte_ticks(Bytes::ZERO, 4).is_empty());
    }

    #[test]
    fn labels_never_overlap_and_stay_inside() {
        let wishes: Vec<_> = (0..20)
            .map(|i| Wish { at: f64::from(i * 7 % 40) * 5.0, size: 18.0, weight: f64::from(i % 6), what: i })
            .collect();
        let (placed, left) = place(wishes, (0.0, 200.0), 30.0);
        assert!(placed.len() > 5 && placed.len() + left.len() == 20);
        let heaviest = place(
            vec![
                Wish { at: 150.0, size: 100.0, weight: 1.0, what: 'a' },
                Wish { at: 195.0, size: 60.0, weight: 0.5, what: 'b' },
            ],
            (0.0, 200.0),
            60.0,
        );
        assert_eq!(heaviest, (vec![(90.0, 'a'), (170.0, 'b')], vec![]), "the heavier makes room");
        for (i, (a, _)) in placed.iter().enumerate() {
            assert!((9.0..=191.0).contains(a));
            assert!(placed[i + 1..].iter().all(|(b, _)| (a - b).abs() >= 18.0 - 1e-3));
            let wish = |label: &i32| f64::from(label * 7 % 40);
            let crosses = |(centre, label): &(f64, i32)| wish(label) > wish(&placed[i].1) && centre < a;
            assert!(!placed.iter().any(crosses));
        }
    }

    #[test]
    fn numbers_have_the_digits_they_need() {
        assert_eq!(["0", "0.5", "10", "1,500"].map(String::from), [0.0, 0.5, 10.0, 1500.0].map(tick_label));
    }
}
