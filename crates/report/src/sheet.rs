//! The style sheet that pages share, and the palette in it.

use std::fmt::Write;

use crate::palette::Tone;

/// What a page may load: nothing but its own style sheet.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Rules of a colour that fills areas and swatches. `@` stands for the class; `|` separates rules.
pub(crate) const AREA: &str =
    ".@ fill:var(--@);background:var(--@)|.lead.@ fill:none;stroke:var(--@);background:none";
/// Rules of a colour that lines have, with a pale area below.
pub(crate) const RATE: &str = ".under.@ fill:var(--@)|.line.@ fill:none;stroke:var(--@)";

/// The palette as custom properties in both schemes, the classes that use it, and the style sheet proper.
/// Each tone comes with its class and rules such as [`AREA`].
pub(crate) fn sheet(tones: &[(String, Tone, &str)]) -> String {
    const SCHEMES: [(&str, &str); 7] = [
        ("--ground", "#ffffff|#15181c"),
        ("--raised", "#f7f8f9|#1c2025"),
        ("--ink", "#1b1f24|#e4e7ea"),
        ("--dim", "#596069|#a2aab3"),
        ("--rule", "#dcdfe3|#343a41"),
        ("--code", "#eceef1|#0e1013"),
        ("--link", "#0b5cad|#7cb8f2"),
    ];
    let (mut light, mut dark, mut classes) = (String::new(), String::new(), String::new());
    for (name, tones) in SCHEMES {
        let (on_light, on_dark) = tones.split_once('|').unwrap_or((tones, tones));
        let _ = (write!(light, "{name}:{on_light};"), write!(dark, "{name}:{on_dark};"));
    }
    for (class, Tone { light: on_light, dark: on_dark }, rules) in tones {
        let _ = write!(light, "--{class}:{on_light};");
        let _ = write!(dark, "--{class}:{on_dark};");
        for rule in rules.split('|') {
            let (selector, properties) = rule.split_once(' ').unwrap_or((rule, ""));
            let _ = writeln!(classes, "{}", format!("{selector}{{{properties}}}").replace('@', class));
        }
    }
    format!(
        "\n:root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{color-scheme:light;{light}}}}}\n{}{classes}",
        include_str!("page.css")
    )
}
