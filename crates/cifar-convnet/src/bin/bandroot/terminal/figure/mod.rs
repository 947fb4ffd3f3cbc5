//! Figures: panels of curves, as SVG and PNG from the same drawing, or as SVG to stand in a page.

mod scale;

use std::path::Path;
use std::sync::Once;

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use cifar_convnet::files;

use scale::Axis;
pub(crate) use scale::Scale;

// Colours that stay apart for colour-blind readers (Okabe and Ito).
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub(crate) const RED: RGBColor = RGBColor(213, 94, 0);
pub(crate) const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub(crate) const SKY: RGBColor = RGBColor(86, 180, 233);
pub(crate) const GREY: RGBColor = RGBColor(130, 130, 130);
pub(crate) const BLACK: RGBColor = RGBColor(0, 0, 0);

const PANEL_WIDTH: u32 = 640;
const PANEL_HEIGHT: u32 = 400;
const LEGEND_HEIGHT: u32 = 40;

// Small, so that the letters are still read on a phone.
const INLINE_WIDTH: u32 = 500;
const INLINE_HEIGHT: u32 = 340;

/// One coordinate system. All panels of a figure show the same curves, so one legend serves them.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    /// The horizontal axis is logarithmic always.
    pub(crate) y_scale: Scale,
    /// The first curve is drawn last, on top.
    pub(crate) curves: Vec<Curve>,
}

/// One series of points with its place in the legend.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
    /// What each point may be off by, up and down; none, or one per point.
    spread: Vec<f64>,
    mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Dots joined by a line of this width.
    Line(u32),
    Cross,
    /// Crosses joined by a thin pale line.
    Pale,
}

impl Curve {
    /// Points joined by a line.
    pub(crate) fn line(name: &'static str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, color, points, spread: Vec::new(), mark: Mark::Line(2) }
    }

    /// A wide line, which stays visible under another curve with the same values.
    pub(crate) fn wide(name: &'static str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, color, points, spread: Vec::new(), mark: Mark::Line(7) }
    }

    /// Separate crosses, for numbers that were not computed here.
    pub(crate) fn marks(name: &'static str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, color, points, spread: Vec::new(), mark: Mark::Cross }
    }
}

impl Curve {
    /// Crosses joined by a thin line, for the numbers of others that ours are compared with.
    pub(crate) fn pale(name: &'static str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, color, points, spread: Vec::new(), mark: Mark::Pale }
    }

    /// With bars of these half lengths, one per point.
    ///
    /// # Panics
    /// If there are more or less bars than points.
    pub(crate) fn with_spread(self, spread: Vec<f64>) -> Self {
        assert_eq!(spread.len(), self.points.len(), "one bar per point");
        Self { spread, ..self }
    }

    /// An entry of an HTML legend: a sample of the curve and its name.
    fn legend_html(&self) -> String {
        let RGBColor(red, green, blue) = self.color;
        // Black curves have the colour of the text, which is light on a dark page.
        let color = if self.color == BLACK {
            "currentColor".to_owned()
        } else {
            format!("rgb({red},{green},{blue})")
        };
        let sample = match self.mark {
            Mark::Line(width) => format!(
                "<path d=\"M0 7h26\" stroke=\"{color}\" stroke-width=\"{width}\"/><circle cx=\"13\" cy=\"7\" \
                 r=\"3.5\" fill=\"{color}\"/>"
            ),
            Mark::Cross => format!("<path d=\"M9 3l8 8m0-8l-8 8\" stroke=\"{color}\"/>"),
            Mark::Pale => format!(
                "<path d=\"M0 7h26\" stroke=\"{color}\" opacity=\"0.5\"/><path d=\"M9 3l8 8m0-8l-8 8\" \
                 stroke=\"{color}\"/>"
            ),
        };
        format!(
            "<span><svg width=\"26\" height=\"14\" aria-hidden=\"true\">{sample}</svg> {}</span>\n",
            self.name
        )
    }
}

/// A panel for a web page: an SVG that takes the page's colours, and its legend.
pub(crate) fn inline(panel: &Panel) -> anyhow::Result<String> {
    register_fonts();
    let size = (INLINE_WIDTH, INLINE_HEIGHT);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw_panel(&area, panel)
        .and_then(|()| area.present())
        .map_err(|error| anyhow!("could not draw the figure {}: {error}", panel.title))?;
    drop(area);
    let opening = format!("<svg width=\"{INLINE_WIDTH}\" height=\"{INLINE_HEIGHT}\"");
    let label = crate::terminal::table::escape_html(&panel.title);
    let svg = svg
        .replacen(&opening, &format!("<svg role=\"img\" aria-label=\"{label}\""), 1)
        .replace("\"#000000\"", "\"currentColor\"")
        .replace("\"#E1E1E1\"", "\"var(--grid)\"");
    let legend: String = panel.curves.iter().map(Curve::legend_html).collect();
    Ok(format!(
        "<figure>\n{}\n<figcaption class=\"legend\">\n{legend}</figcaption></figure>\n",
        svg.trim()
    ))
}

/// Writes `NAME.svg` and `NAME.png` into a folder, two panels side by side.
pub(crate) fn write(folder: &Path, name: &str, panels: &[Panel]) -> anyhow::Result<()> {
    register_fonts();
    let columns = panels.len().min(2);
    let rows = panels.len().div_ceil(2);
    let size = (PANEL_WIDTH * columns as u32, PANEL_HEIGHT * rows as u32 + LEGEND_HEIGHT);
    let failed = |what: String| anyhow!("could not draw the figure {name}: {what}");

    let mut svg = String::new();
    draw(&SVGBackend::with_string(&mut svg, size).into_drawing_area(), panels, rows, columns)
        .map_err(failed)?;
    files::write(&folder.join(format!("{name}.svg")), svg.as_bytes())?;

    // The bitmap backend takes a path; its temporary file is renamed like every other file.
    let path = folder.join(format!("{name}.png"));
    let temporary = folder.join(format!(".{name}.{}.partial.png", files::unique_name()?));
    let drawn =
        draw(&BitMapBackend::new(&temporary, size).into_drawing_area(), panels, rows, columns);
    let renamed = drawn.map_err(failed).and_then(|()| {
        std::fs::rename(&temporary, &path)
            .with_context(|| format!("could not write {}", path.display()))
    });
    if renamed.is_err() {
        // It may not exist; that is what is wanted.
        drop(std::fs::remove_file(&temporary));
    }
    renamed
}

/// The fonts come with the program: no system library, the same image everywhere.
fn register_fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let registered =
            register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
        assert!(registered.is_ok(), "the embedded font is a font");
    });
}

fn draw<D: DrawingBackend>(
    area: &DrawingArea<D, Shift>,
    panels: &[Panel],
    rows: usize,
    columns: usize,
) -> Result<(), String> {
    area.fill(&WHITE).map_err(|e| e.to_string())?;
    let (body, legend) = area.split_vertically(PANEL_HEIGHT * rows as u32);
    for (panel, part) in panels.iter().zip(body.split_evenly((rows, columns))) {
        draw_panel(&part, panel).map_err(|e| e.to_string())?;
    }
    if let Some(panel) = panels.first() {
        draw_legend(&legend, &panel.curves).map_err(|e| e.to_string())?;
    }
    area.present().map_err(|e| e.to_string())
}

type Drawn<D> = Result<(), DrawingAreaErrorKind<<D as DrawingBackend>::ErrorType>>;

fn draw_panel<D: DrawingBackend>(area: &DrawingArea<D, Shift>, panel: &Panel) -> Drawn<D> {
    let points = || panel.curves.iter().flat_map(|curve| curve.points.iter().copied());
    let ends = panel.curves.iter().flat_map(|curve| {
        let ends = curve.points.iter().zip(&curve.spread);
        ends.flat_map(|(&(_, y), &spread)| [y - spread, y + spread])
    });
    let x_axis = Axis::over(Scale::Logarithmic, points().map(|point| point.0));
    let y_axis = Axis::over(panel.y_scale, points().map(|point| point.1).chain(ends));
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 19))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(62)
        .build_cartesian_2d(x_axis, y_axis)?;
    chart
        .configure_mesh()
        .x_desc(panel.x_label)
        .y_desc(panel.y_label)
        .axis_desc_style(("sans-serif", 17))
        .label_style(("sans-serif", 15))
        .x_label_formatter(&|x| Axis::label(*x))
        .y_label_formatter(&|y| Axis::label(*y))
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for curve in panel.curves.iter().rev() {
        let bars = curve.points.iter().zip(&curve.spread).map(|(&(x, y), &spread)| {
            PathElement::new([(x, y - spread), (x, y + spread)], curve.color.mix(0.7))
        });
        chart.draw_series(bars)?;
        match curve.mark {
            Mark::Line(width) => {
                let style = curve.color.stroke_width(width);
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), style))?;
                let dots = curve.points.iter().map(|&at| Circle::new(at, 3, curve.color.filled()));
                chart.draw_series(dots)?;
            }
            Mark::Cross | Mark::Pale => {
                if curve.mark == Mark::Pale {
                    let style = curve.color.mix(0.5);
                    chart.draw_series(LineSeries::new(curve.points.iter().copied(), style))?;
                }
                let crosses = curve.points.iter().map(|&at| Cross::new(at, 4, curve.color));
                chart.draw_series(crosses)?;
            }
        }
    }
    Ok(())
}

/// One line under the panels: a sample of every curve and its name.
fn draw_legend<D: DrawingBackend>(area: &DrawingArea<D, Shift>, curves: &[Curve]) -> Drawn<D> {
    let style = ("sans-serif", 17).into_font();
    let y = LEGEND_HEIGHT as i32 / 2 - 4;
    let mut x = 60;
    for curve in curves {
        match curve.mark {
            Mark::Line(width) => {
                let style = curve.color.stroke_width(width);
                area.draw(&PathElement::new([(x, y), (x + 26, y)], style))?;
            }
            Mark::Cross | Mark::Pale => area.draw(&Cross::new((x + 13, y), 4, curve.color))?,
        }
        area.draw(&Text::new(curve.name, (x + 34, y - 9), style.clone()))?;
        x += 34 + 9 * curve.name.len() as i32 + 30;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_in_a_page_takes_its_colours_and_holds_nothing_foreign() {
        let curves = vec![
            Curve::line("ours", BLUE, vec![(1.0, 40.0), (10.0, 50.0)]).with_spread(vec![1.0, 0.0]),
            Curve::pale("paper", BLACK, vec![(1.0, 39.0)]),
        ];
        let y_scale = Scale::Linear;
        let panel = Panel { title: "a < b".into(), x_label: "n", y_label: "%", y_scale, curves };
        let html = inline(&panel).unwrap();
        assert!(
            html.contains("viewBox") && html.contains("currentColor") && html.contains("a &lt; b")
        );
        assert!(!html.contains("#000000") && !html.contains("width=\"500\""));
        let empty = Panel { curves: Vec::new(), ..panel };
        inline(&empty).unwrap();
    }
}
