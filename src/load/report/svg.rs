//! Drawing: axes, lines, cells, text, as SVG. It knows scales and pixels, not results (`charts` does). Colours are
//! classes with a second set for dark screens, so that a picture is legible on both; no script, no outside font.

use std::fmt::Write;

/// Width of every picture, in CSS pixels.
pub const WIDTH: f64 = 860.0;

/// The colours. Plain class rules, because not every SVG reader knows CSS variables.
pub const STYLE: &str = "\
.t{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.h{font-weight:600;font-size:15px}.m{fill:#59636e}.e{text-anchor:end}.c{text-anchor:middle}\
.g{stroke:#d1d9e0;stroke-width:1}.a{stroke:#818b98;stroke-width:1}.bg{fill:#fff}\
.l{fill:none;stroke-width:1.8;stroke-linejoin:round}.d{stroke-dasharray:5 4}\
.s0{stroke:#0969da}.s1{stroke:#bc4c00}.s2{stroke:#1a7f37}.s3{stroke:#8250df}.s4{stroke:#bf3989}\
.f0{fill:#0969da}.f1{fill:#bc4c00}.f2{fill:#1a7f37}.f3{fill:#8250df}.f4{fill:#bf3989}.fe{fill:#cf222e}\
@media(prefers-color-scheme:dark){.t{fill:#f0f6fc}.m{fill:#9198a1}.g{stroke:#30363d}.a{stroke:#656c76}.bg{fill:#0d1117}\
.s0{stroke:#58a6ff}.s1{stroke:#f0883e}.s2{stroke:#3fb950}.s3{stroke:#bc8cff}.s4{stroke:#ff80c8}\
.f0{fill:#58a6ff}.f1{fill:#f0883e}.f2{fill:#3fb950}.f3{fill:#bc8cff}.f4{fill:#ff80c8}.fe{fill:#ff7b72}}";

/// Colours told apart.
pub const COLOURS: usize = 5;

/// From values to pixels.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Equal steps. An empty range is widened.
    pub fn linear((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, from, to, logarithmic: false }
    }

    /// Equal factors. Values at or below zero are drawn at the low end.
    pub fn logarithmic((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let low = low.max(1e-12);
        let high = if high > low * 1.01 { high } else { low * 10.0 };
        Self { low, high, from, to, logarithmic: true }
    }

    /// The pixel of a value, kept within the axis.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// Round values to mark, eight at most.
    pub fn ticks(&self) -> Vec<f64> {
        if self.logarithmic { self.ticks_by_factor() } else { self.ticks_by_step() }
    }

    fn ticks_by_step(&self) -> Vec<f64> {
        let step = round_up((self.high - self.low) / 6.0);
        let first = (self.low / step).ceil();
        (0..9)
            .map(|n| (first + f64::from(n)) * step)
            .take_while(|tick| *tick <= self.high * (1.0 + 1e-9))
            .collect()
    }

    fn ticks_by_factor(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades <= 2.7 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let skip = (decades / 8.0).ceil().max(1.0) as i32;
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        ((first..=last).step_by(skip as usize))
            .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .collect()
    }
}

/// The next of 1, 2, 5 × 10ⁿ.
fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0]
        .map(|step| step * decade)
        .into_iter()
        .find(|step| *step >= value * 0.999)
        .unwrap_or(10.0 * decade)
}

/// A plot's frame: its two scales, which end where the frame ends.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Across.
    pub x: Scale,
    /// Up: its `from` is the lower edge.
    pub y: Scale,
}

/// A picture in the making.
#[derive(Debug, Default)]
pub struct Canvas {
    body: String,
}

impl Canvas {
    /// Nothing drawn.
    pub fn new() -> Self {
        Self::default()
    }

    /// Text in the classes given; it is escaped here.
    pub fn text(&mut self, (x, y): (f64, f64), classes: &str, text: &str) {
        let text = escape(text);
        let _ = write!(self.body, r#"<text x="{x:.1}" y="{y:.1}" class="t {classes}">{text}</text>"#);
    }

    /// A straight line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), classes: &str) {
        let _ = write!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{classes}"/>"#
        );
    }

    /// A filled rectangle.
    pub fn cell(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), classes: &str, opacity: f64) {
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" class="{classes}" fill-opacity="{opacity:.2}"/>"#
        );
    }

    /// A point.
    pub fn dot(&mut self, (x, y): (f64, f64), classes: &str) {
        let _ = write!(self.body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" class="{classes}"/>"#);
    }

    /// A line through points given as values.
    pub fn curve(&mut self, frame: &Frame, points: &[(f64, f64)], classes: &str) {
        if points.is_empty() {
            return;
        }
        let mut path = String::with_capacity(points.len() * 14);
        for (at, (x, y)) in points.iter().enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", frame.x.at(*x), frame.y.at(*y));
        }
        let _ = write!(self.body, r#"<path d="{path}" class="l {classes}"/>"#);
    }

    /// Grid, marks and names of both axes.
    pub fn axes(&mut self, frame: &Frame, x_label: impl Fn(f64) -> String, y_label: impl Fn(f64) -> String) {
        let Frame { x, y } = frame;
        for tick in y.ticks() {
            let at = y.at(tick);
            self.line((x.from, at), (x.to, at), "g");
            self.text((x.from - 8.0, at + 4.0), "m e", &y_label(tick));
        }
        for tick in x.ticks() {
            let at = x.at(tick);
            self.line((at, y.from), (at, y.to), "g");
            self.text((at, y.from + 17.0), "m c", &x_label(tick));
        }
        self.line((x.from, y.from), (x.to, y.from), "a");
    }

    /// Names of the curves with their colours, from the right edge to the left.
    pub fn legend(&mut self, right: f64, y: f64, names: &[(&str, String)]) {
        let mut x = right;
        for (name, classes) in names.iter().rev() {
            // Wide enough for the widest letters, so that names never meet.
            x -= 8.0 * name.chars().count() as f64;
            self.text((x, y), "", name);
            self.line((x - 24.0, y - 4.0), (x - 6.0, y - 4.0), &format!("l {classes}"));
            x -= 42.0;
        }
    }

    /// The picture as an element to stand in a page or in another picture, `top` pixels down.
    pub fn into_group(self, top: f64) -> String {
        format!(r#"<g transform="translate(0 {top:.0})">{}</g>"#, self.body)
    }
}

/// A whole SVG document. `title` is read to those who do not see it.
pub fn document(title: &str, height: f64, groups: &[String]) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", element(title, height, groups))
}

/// An `svg` element with its own style.
pub fn element(title: &str, height: f64, groups: &[String]) -> String {
    let title = escape(title);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img"><title>{title}</title><style>{STYLE}</style><rect class="bg" width="100%" height="100%"/>{}</svg>"#,
        groups.concat()
    )
}

/// Text made safe for XML and HTML. Control characters, which XML forbids, become spaces.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_their_ends_and_clamp() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 200.0));
        assert_eq!([0.0, 5.0, 10.0, 99.0].map(|v| linear.at(v)), [100.0, 150.0, 200.0, 200.0]);
        let logarithmic = Scale::logarithmic((1.0, 100.0), (0.0, 10.0));
        assert_eq!([0.0, 1.0, 10.0, 100.0].map(|v| logarithmic.at(v)), [0.0, 0.0, 5.0, 10.0]);
    }

    #[test]
    fn ticks_are_round_few_and_within() {
        assert_eq!(Scale::linear((0.0, 10.0), (0.0, 1.0)).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::logarithmic((1.0, 50.0), (0.0, 1.0)).ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        for range in [(0.0, 0.0), (5.0, 5.0), (1.0, 1e9), (0.0, 1e-9), (3.0, 3_000_000.0)] {
            for scale in [Scale::linear(range, (0.0, 1.0)), Scale::logarithmic(range, (0.0, 1.0))] {
                let ticks = scale.ticks();
                assert!(ticks.len() <= 9, "{range:?}: {ticks:?}");
                assert!(ticks.iter().all(|tick| tick.is_finite()));
            }
        }
    }

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escape("<a b=\"c\">&\u{1b}"), "&lt;a b=&quot;c&quot;&gt;&amp; ");
    }
}
