//! Bars that are stacked of named parts, each a share of the picture's width.

use lotsfree_units::Percent;

use crate::chart::cut;
use crate::svg::{Anchor, LINE, Svg, text_width};

/// A part of this share of the width at most has no entry in the legend: it cannot be seen.
const UNSEEN: f64 = 0.001;

/// One bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// What it is of, above its left end.
    pub(crate) label: String,
    /// A figure above its right end.
    pub(crate) note: String,
    /// Its parts, from the left; all bars of a picture have the same ones, some of them zero.
    pub(crate) parts: Vec<Part>,
}

/// A part of a bar.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Class that gives the colour.
    pub(crate) class: String,
    /// What it is, in the legend and when it is pointed at.
    pub(crate) name: String,
    /// The share of what the bar is of.
    pub(crate) share: f64,
}

/// Draws bars below a legend. `whole` is the share that takes all of the width: 1 where the parts are all
/// that there is.
pub(crate) fn draw(bars: &[Bar], whole: f64, width: f64, id: &str, message: &str) -> String {
    const BAR: f64 = 22.0;
    const ROW: f64 = LINE + 6.0 + BAR + 12.0;
    let mut picture = Svg::new(width);
    let mut top = legend(&mut picture, bars, width) + 10.0;
    let mut description = Vec::new();
    for bar in bars {
        let label = cut(&bar.label, (width - text_width(&bar.note)) / 1.2);
        picture.text("strong", Anchor::Start, 0.0, top + LINE - 2.0, &label);
        picture.text("dim", Anchor::End, width, top + LINE - 2.0, &bar.note);
        let y = top + LINE + 4.0;
        let mut start = 0.0;
        let mut said = Vec::new();
        for Part { class, name, share } in &bar.parts {
            let wide = share / whole * width;
            let label = Percent(*share).to_string();
            if *share > 0.0 {
                let title = format!("{name}: {label}");
                picture.rect_with_title(&format!("part {class}"), (start, y, wide, BAR), &title);
                said.push(title);
            }
            if wide > text_width(&label) + 8.0 {
                let (middle, base) = (start + wide / 2.0, y + BAR / 2.0 + 4.5);
                picture.text(&format!("on-bar on-{class}"), Anchor::Middle, middle, base, &label);
            }
            start += wide;
        }
        description.push(format!("{}: {}", bar.label, said.join(", ")));
        top += ROW;
    }
    picture.finish(top, &format!("{id}-{width:.0}"), message, &description.join("; "))
}

/// The names of the parts that can be seen, each once. Returns the base line of the last.
fn legend(picture: &mut Svg, bars: &[Bar], width: f64) -> f64 {
    let (mut x, mut y) = (0.0, LINE - 3.0);
    let mut named: Vec<&str> = Vec::new();
    let most = bars.iter().map(|bar| bar.parts.len()).max().unwrap_or(0);
    let parts = (0..most).flat_map(|place| bars.iter().filter_map(move |bar| bar.parts.get(place)));
    for part in parts.filter(|part| part.share >= UNSEEN) {
        if named.contains(&part.class.as_str()) {
            continue;
        }
        named.push(&part.class);
        let name = cut(&part.name, width - 16.0);
        let wide = 16.0 + text_width(&name) + 14.0;
        if x + wide > width && x > 0.0 {
            (x, y) = (0.0, y + LINE + 4.0);
        }
        picture.rect(&part.class, x, y - 10.0, 11.0, 11.0);
        picture.text("", Anchor::Start, x + 16.0, y, &name);
        x += wide;
    }
    y
}
