//! Figures: panels of curves over logarithmic axes, as SVG and PNG from the same drawing.

use std::path::Path;
use std::sync::Once;

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::output;

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

/// One coordinate system. All panels of a figure show the same curves, so one legend serves them.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    /// The first curve is drawn last, on top.
    pub(crate) curves: Vec<Curve>,
}

/// One series of points with its place in the legend.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
    mark: Mark,
}

#[derive(Debug, Clone, Copy)]
enum Mark {
    /// Dots joined by a line of this width.
    Line(u32),
    Cross,
}

impl Curve {
    /// Points joined by a line.
    pub(crate) fn line(name: &'static str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, color, points, mark: Mark::Line(2) }
    }

    /// A wide line, which stays visible under another curve with the same values.
    pub(crate) fn wide(name: &'static str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, color, points, mark: Mark::Line(7) }
    }

    /// Separate crosses, for numbers that were not computed here.
    pub(crate) fn marks(name: &'static str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, color, points, mark: Mark::Cross }
    }
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
    output::write_file(&folder.join(format!("{name}.svg")), svg.as_bytes())?;

    // The bitmap backend takes a path; its temporary file is renamed like every other file.
    let path = folder.join(format!("{name}.png"));
    let temporary = folder.join(format!(".{name}.{}.partial.png", std::process::id()));
    draw(&BitMapBackend::new(&temporary, size).into_drawing_area(), panels, rows, columns)
        .map_err(failed)?;
    std::fs::rename(&temporary, &path)
        .with_context(|| format!("could not write {}", path.display()))
}

/// The fonts come with the program: no system library, the same picture everywhere.
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
    let (left, right) = padded_range(points().map(|point| point.0));
    let (bottom, top) = padded_range(points().map(|point| point.1));
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 19))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(62)
        .build_cartesian_2d(
            (left..right).log_scale().with_key_points(ticks(left, right)),
            (bottom..top).log_scale().with_key_points(ticks(bottom, top)),
        )?;
    chart
        .configure_mesh()
        .x_desc(panel.x_label)
        .y_desc(panel.y_label)
        .axis_desc_style(("sans-serif", 17))
        .label_style(("sans-serif", 15))
        .x_label_formatter(&|x| x.to_string())
        .y_label_formatter(&|y| y.to_string())
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for curve in panel.curves.iter().rev() {
        match curve.mark {
            Mark::Line(width) => {
                let style = curve.color.stroke_width(width);
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), style))?;
                let dots = curve.points.iter().map(|&at| Circle::new(at, 3, curve.color.filled()));
                chart.draw_series(dots)?;
            }
            Mark::Cross => {
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
            Mark::Cross => area.draw(&Cross::new((x + 13, y), 4, curve.color))?,
        }
        area.draw(&Text::new(curve.name, (x + 34, y - 9), style.clone()))?;
        x += 34 + 9 * curve.name.len() as i32 + 30;
    }
    Ok(())
}

/// The range of the values with some air on both sides.
fn padded_range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
    (0.85 * least, 1.2 * most)
}

/// The numbers 1, 2, 5 times powers of ten within a range.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let tick = |decade: i32, digit: f64| {
        if decade < 0 { digit / 10_f64.powi(-decade) } else { digit * 10_f64.powi(decade) }
    };
    decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| tick(decade, digit)))
        .filter(|&x| x >= from && x <= to)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_inside_the_range() {
        assert_eq!(ticks(0.3, 25.0), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(90.0, 2400.0), [100.0, 200.0, 500.0, 1000.0, 2000.0]);
    }
}
