//! The style sheet that pages share, and the palette in it.

use std::fmt::Write;

use lotsfree_units::visible;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use crate::palette::Tone;

/// A self-contained page: its title, its style sheet, and what its `main` holds. All markup is free of
/// control characters, so those that are spelled out came from the host.
pub(crate) fn page(title: &str, style: &str, main: &Markup) -> String {
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "lotsfree: " (title) }
                style { (PreEscaped(style)) }
            }
            body { main { (main) } }
        }
    };
    visible(&page.into_string()).into_owned()
}

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
