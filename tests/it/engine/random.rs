//! Made-up pipelines over made-up files, with a fixed seed each: the engine against the row-by-row computation.

use super::bed::{Bed, Layout};
use super::cells::{Cell, Dice, column, exact_text};
use super::naive::{compute, converted, partition_of};
use chrono_tz::Tz;
use polars::prelude::{DataType as Physical, TimeUnit, TimeZone};
use refrain::pipeline::{self, DataType};
use refrain::run::Scalar;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A column of the contract.
#[derive(Debug)]
pub(super) struct ContractColumn {
    pub(super) contract: DataType,
    pub(super) not_null: bool,
}

/// A source file: physical types, and rows of them.
#[derive(Debug)]
pub(super) struct File {
    pub(super) physical: Vec<Physical>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A column or the start of its period.
pub(super) struct Dimension {
    pub(super) column: usize,
    pub(super) unit: Option<&'static str>,
}

/// What a condition is for a row: true, false or neither.
type Truth = Box<dyn Fn(&[Cell]) -> Option<bool>>;

/// A condition of three values.
pub(super) struct Filter {
    sql: String,
    pub(super) holds: Truth,
}

/// A pipeline and its files.
pub(super) struct Case {
    pub(super) columns: Vec<ContractColumn>,
    pub(super) files: Vec<File>,
    pub(super) partition: Vec<(String, &'static str, usize)>,
    pub(super) dimensions: Vec<Dimension>,
    pub(super) measures: Vec<(&'static str, usize)>,
    pub(super) filter: Option<Filter>,
    pub(super) timezone: Tz,
}

const UNITS: [TimeUnit; 3] = [TimeUnit::Milliseconds, TimeUnit::Microseconds, TimeUnit::Nanoseconds];
/// Instants (UTC, microseconds) around which times lie: changes of clocks, ends of months, and before 1970.
const TIMES: [i64; 6] = [
    1_711_846_800_000_000,
    1_729_990_800_000_000,
    1_709_247_600_000_000,
    1_704_067_200_000_000,
    0,
    -2_208_988_800_000_000,
];

fn contract(dice: &mut Dice) -> DataType {
    let decimal = |precision, scale| DataType::Decimal { precision, scale };
    let zoned = DataType::Datetime(Some(*dice.pick(&[Tz::UTC, Tz::Europe__Berlin])));
    let types = [
        DataType::Bool,
        DataType::Int(8),
        DataType::Int(16),
        DataType::Int(32),
        DataType::Int(64),
        DataType::UInt(8),
        DataType::UInt(16),
        DataType::UInt(32),
        DataType::UInt(64),
        DataType::Float32,
        DataType::Float64,
        decimal(5, 2),
        decimal(18, 2),
        decimal(19, 0),
        decimal(38, 3),
        decimal(38, 38),
        DataType::String,
        DataType::String,
        DataType::Date,
        DataType::Datetime(None),
        DataType::Datetime(None),
        zoned,
    ];
    dice.pick(&types).clone()
}

fn integers() -> [Physical; 8] {
    use Physical::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64]
}

/// A type that a file may have for a type of the contract.
fn physical(dice: &mut Dice, contract: &DataType) -> Physical {
    if dice.one_in(20) {
        return Physical::Null;
    }
    let mut numbers = integers().to_vec();
    let zones = ["UTC", "Europe/Berlin", "America/New_York"];
    let zone = |zone: &str| Some(TimeZone::opt_try_new(Some(zone)).unwrap().unwrap());
    match contract {
        DataType::Bool => Physical::Boolean,
        DataType::String => Physical::String,
        DataType::Date => Physical::Date,
        DataType::Datetime(None) => Physical::Datetime(*dice.pick(&UNITS), None),
        DataType::Datetime(_) => Physical::Datetime(*dice.pick(&UNITS), zone(zones[dice.below(3)])),
        DataType::Float32 | DataType::Float64 => {
            numbers.extend([Physical::Float32, Physical::Float64, Physical::Float32, Physical::Float64]);
            dice.pick(&numbers).clone()
        }
        _ => {
            let decimals = [(5, 2), (9, 0), (18, 2), (38, 5), (38, 0)].map(|(p, s)| Physical::Decimal(p, s));
            numbers.extend([Physical::Float32, Physical::Float64]);
            numbers.extend(decimals);
            dice.pick(&numbers).clone()
        }
    }
}

fn whole(dice: &mut Dice, least: i128, most: i128) -> i128 {
    match dice.below(12) {
        0 => most,
        1 => least,
        2 => dice.around(200).clamp(least, most),
        3 => dice.around(i64::MAX).clamp(least, most),
        _ => dice.around(3).clamp(least, most),
    }
}

fn cell(dice: &mut Dice, physical: &Physical, wild: bool) -> Cell {
    if dice.one_in(9) || *physical == Physical::Null {
        return Cell::Null;
    }
    let doubles = [0.0, -0.0, 1.0, -1.5, 2.5, 0.125, 1.145, 3.0, 127.0, 1e15, 1e19, -1e300, f64::NAN, f64::INFINITY];
    match physical {
        Physical::Boolean => Cell::Bool(dice.one_in(2)),
        Physical::Float32 => Cell::Float(f64::from(*dice.pick(&doubles) as f32)),
        Physical::Float64 => Cell::Float(*dice.pick(&doubles)),
        Physical::String => {
            let texts = ["a", "b", "é", "Ünï/cödé", "a=b", "", "__HIVE_DEFAULT_PARTITION__", "..", "a b", "%41", "ß\n"];
            Cell::Text((*dice.pick(&texts)).to_owned())
        }
        Physical::Date => match dice.below(12) {
            0 if wild => Cell::Date(*dice.pick(&[i32::MAX, i32::MIN, 2_932_897, -719_163])),
            _ => Cell::Date(i32::try_from(dice.around(70)).unwrap() + *dice.pick(&[19_800, 0, -719_000])),
        },
        Physical::Datetime(unit, _) => {
            if wild && dice.one_in(12) {
                return Cell::Time(*dice.pick(&[i64::MAX, i64::MIN, 253_402_300_800_000_000]));
            }
            let micros = *dice.pick(&TIMES) + i64::try_from(dice.around(40)).unwrap() * 1_800_000_000;
            Cell::Time(match unit {
                TimeUnit::Milliseconds => micros / 1000,
                TimeUnit::Microseconds => micros + i64::from(dice.one_in(3)),
                TimeUnit::Nanoseconds => micros * 1000 - i64::from(dice.one_in(3)),
            })
        }
        Physical::Decimal(precision, scale) => {
            let limit = 10i128.pow(u32::try_from(*precision).unwrap()) - 1;
            let scale = u8::try_from(*scale).unwrap();
            let one = 10i128.pow(u32::from(scale));
            let value = if dice.one_in(2) { dice.around(4) * one } else { whole(dice, -limit, limit) };
            Cell::Exact(value.clamp(-limit, limit), scale)
        }
        integer => {
            let at = integers().iter().position(|known| known == integer).unwrap();
            let bits = 8u32 << (at % 4);
            let (least, most) =
                if at < 4 { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
            Cell::Exact(whole(dice, least, most), 0)
        }
    }
}

fn partition_column(dice: &mut Dice, columns: &[ContractColumn], timezone: Tz) -> Option<(&'static str, usize)> {
    let at = dice.below(columns.len());
    let transforms: &[&str] = match &columns[at].contract {
        DataType::Float32 | DataType::Float64 => return None,
        DataType::Date => &["year_of", "month_of", "day_of", "value_of"],
        DataType::Datetime(Some(_)) if timezone != Tz::UTC => &["year_of", "month_of", "day_of"],
        DataType::Datetime(_) => &["year_of", "month_of", "day_of", "hour_of", "hour_of_day", "value_of"],
        _ => &["value_of"],
    };
    Some((*dice.pick(transforms), at))
}

fn filter(dice: &mut Dice, columns: &[ContractColumn], depth: usize) -> Filter {
    let at = dice.below(columns.len());
    if depth > 0 && !dice.one_in(3) {
        let (a, b) = (filter(dice, columns, depth - 1), filter(dice, columns, depth - 1));
        return match dice.below(3) {
            0 => Filter { sql: format!("(not {})", a.sql), holds: Box::new(move |row| (a.holds)(row).map(|v| !v)) },
            1 => Filter {
                sql: format!("({} and {})", a.sql, b.sql),
                holds: Box::new(move |row| match ((a.holds)(row), (b.holds)(row)) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }),
            },
            _ => Filter {
                sql: format!("({} or {})", a.sql, b.sql),
                holds: Box::new(move |row| match ((a.holds)(row), (b.holds)(row)) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                }),
            },
        };
    }
    let negated = dice.one_in(2);
    match &columns[at].contract {
        DataType::Bool => Filter {
            sql: format!("c{at}"),
            holds: Box::new(move |row| if let Cell::Bool(v) = row[at] { Some(v) } else { None }),
        },
        DataType::String => Filter {
            sql: format!("c{at} {}in ('a', 'é', '')", if negated { "not " } else { "" }),
            holds: Box::new(move |row| match &row[at] {
                Cell::Text(v) => Some(["a", "é", ""].contains(&v.as_str()) != negated),
                _ => None,
            }),
        },
        DataType::Int(_) | DataType::UInt(_) | DataType::Decimal { .. }
            if columns[at].contract.digits() != Some((38, 0)) =>
        {
            let scale = columns[at].contract.digits().map_or(0, |digits| digits.1);
            Filter {
                sql: format!("c{at} {} 0.5", if negated { ">=" } else { "<" }),
                holds: Box::new(move |row| match &row[at] {
                    // Twice the value against one: nothing is lost, and most of it fits.
                    Cell::Exact(v, _) => {
                        let half = v.checked_mul(2).map_or(*v > 0, |twice| twice >= 10i128.pow(u32::from(scale)));
                        Some(half == negated)
                    }
                    _ => None,
                }),
            }
        }
        _ => Filter {
            sql: format!("c{at} is {}null", if negated { "not " } else { "" }),
            holds: Box::new(move |row| Some((row[at] == Cell::Null) != negated)),
        },
    }
}

/// A case over columns of types that `contract` picks.
pub(super) fn case(dice: &mut Dice, contract: fn(&mut Dice) -> DataType) -> Case {
    let timezone = *dice.pick(&[Tz::UTC, Tz::Europe__Berlin, Tz::America__Sao_Paulo]);
    let count = 2 + dice.below(5);
    let columns: Vec<ContractColumn> =
        (0..count).map(|_| ContractColumn { contract: contract(dice), not_null: dice.one_in(4) }).collect();
    let mut partition = Vec::new();
    while partition.is_empty() || (partition.len() < 3 && dice.one_in(2)) {
        let found = partition_column(dice, &columns, timezone);
        partition.extend(found.map(|(transform, at)| (format!("p{}", partition.len()), transform, at)));
        if columns.iter().all(|c| c.contract.is_float()) {
            return case(dice, contract);
        }
    }
    let mut dimensions = Vec::new();
    for _ in 0..dice.below(4) {
        let column = dice.below(columns.len());
        let units: &[&str] = match &columns[column].contract {
            DataType::Date => &["year", "month", "week", "day"],
            DataType::Datetime(Some(_)) if timezone != Tz::UTC => &["year", "month", "week", "day"],
            DataType::Datetime(_) => &["year", "month", "week", "day", "hour", "minute"],
            _ => &[],
        };
        let unit = if units.is_empty() || dice.one_in(4) { None } else { Some(*dice.pick(units)) };
        if !columns[column].contract.is_float() {
            dimensions.push(Dimension { column, unit });
        }
    }
    let mut measures = vec![("count(*)", 0)];
    for _ in 0..1 + dice.below(5) {
        let at = dice.below(columns.len());
        let functions: &[&str] = match &columns[at].contract {
            contract if contract.is_exact() => &["sum", "sum", "avg", "min", "max", "count", "distinct"],
            contract if contract.is_float() => &["min", "max", "count"],
            _ => &["min", "max", "count", "distinct"],
        };
        measures.push((*dice.pick(functions), at));
    }
    let filter = (!dice.one_in(3)).then(|| filter(dice, &columns, 2));
    let wild: Vec<bool> = (0..count).map(|at| partition.iter().any(|(_, _, source)| *source == at)).collect();
    let file = |dice: &mut Dice| {
        let physical: Vec<Physical> = columns.iter().map(|column| physical(dice, &column.contract)).collect();
        let rows =
            (0..dice.below(60)).map(|_| physical.iter().zip(&wild).map(|(p, wild)| cell(dice, p, *wild)).collect());
        File { rows: rows.collect(), physical }
    };
    let files = (0..1 + dice.below(3)).map(|_| file(dice)).collect();
    Case { columns, files, partition, dimensions, measures, filter, timezone }
}

impl Case {
    pub(super) fn toml(&self) -> String {
        let mut out = format!("name = \"t\"\ntimezone = \"{}\"\nmax_rejected = 1.0\n", self.timezone.name());
        out.push_str("[source]\nformat = \"parquet\"\npath = \"raw/*.parquet\"\n[source.columns]\n");
        for (at, column) in self.columns.iter().enumerate() {
            writeln!(out, "c{at} = \"{}{}\"", column.contract, if column.not_null { " not null" } else { "" }).unwrap();
        }
        out.push_str("[partition]\n");
        for (name, transform, at) in &self.partition {
            writeln!(out, "{name} = {{ {transform} = \"c{at}\" }}").unwrap();
        }
        out.push_str("[dimensions]\n");
        for (number, dimension) in self.dimensions.iter().enumerate() {
            let at = dimension.column;
            match dimension.unit {
                Some(unit) => writeln!(out, "d{number} = {{ truncate = \"c{at}\", to = \"{unit}\" }}").unwrap(),
                None => writeln!(out, "d{number} = \"c{at}\"").unwrap(),
            }
        }
        out.push_str("[measures]\n");
        for (number, (function, at)) in self.measures.iter().enumerate() {
            match *function {
                "count(*)" => writeln!(out, "m{number} = \"count(*)\"").unwrap(),
                "distinct" => writeln!(out, "m{number} = \"count(distinct c{at})\"").unwrap(),
                _ => writeln!(out, "m{number} = \"{function}(c{at})\"").unwrap(),
            }
        }
        if let Some(filter) = &self.filter {
            writeln!(out, "[where]\nsql = \"{}\"", filter.sql).unwrap();
        }
        out
    }

    /// Writes the files.
    pub(super) fn write(&self, bed: &Bed, dice: &mut Dice) {
        for (number, file) in self.files.iter().enumerate() {
            let columns = file.physical.iter().enumerate().map(|(at, physical)| {
                let cells: Vec<Cell> = file.rows.iter().map(|row| row[at].clone()).collect();
                column(&format!("c{at}"), physical, &cells)
            });
            let layout = Layout { row_group: *dice.pick(&[1, 3, 10, 100]), statistics: !dice.one_in(3) };
            bed.write_as(&format!("raw/{number}.parquet"), columns.collect(), layout);
        }
    }

    /// Every partition that a row has.
    pub(super) fn partitions(&self) -> BTreeSet<String> {
        self.files.iter().flat_map(|file| converted(self, file)).filter_map(|row| partition_of(self, &row)).collect()
    }
}

/// The type that a column has in a file.
fn file_type(of: &DataType) -> Physical {
    match of {
        DataType::Bool => Physical::Boolean,
        DataType::Int(bits) => integers()[usize::try_from(bits.ilog2()).unwrap() - 3].clone(),
        DataType::UInt(bits) => integers()[usize::try_from(bits.ilog2()).unwrap() + 1].clone(),
        DataType::Float32 => Physical::Float32,
        DataType::Float64 => Physical::Float64,
        DataType::Decimal { precision, scale } => Physical::Decimal(usize::from(*precision), usize::from(*scale)),
        DataType::String => Physical::String,
        DataType::Date => Physical::Date,
        DataType::Datetime(zone) => {
            let zone = zone.map(|zone| TimeZone::opt_try_new(Some(zone.name())).unwrap().unwrap());
            Physical::Datetime(TimeUnit::Microseconds, zone)
        }
    }
}

/// Totals of counts and sums against the rows.
fn assert_totals(
    case: &Case,
    report: &refrain::engine::Report,
    rows: &BTreeMap<(String, Vec<String>), Vec<String>>,
    seed: u64,
) {
    let number = |text: &str| {
        text.split_once("e-").map(|(v, scale)| (v.parse::<i128>().unwrap(), scale.parse::<u32>().unwrap()))
    };
    for part in &report.partitions {
        let of_part =
            || rows.iter().filter(|((key, _), _)| key == part.partition.as_str()).map(|(_, measures)| measures);
        for (at, (function, _)) in case.measures.iter().enumerate() {
            let adds = function.starts_with("count") || *function == "sum";
            let values: Vec<(i128, u32)> = of_part().filter_map(|measures| number(&measures[at])).collect();
            let Some(scale) = values.iter().map(|(_, scale)| *scale).max().filter(|_| adds) else { continue };
            let sum = values
                .iter()
                .try_fold(0i128, |sum, (v, s)| sum.checked_add(v.checked_mul(10i128.checked_pow(scale - s)?)?));
            let Some(sum) = sum else { continue };
            let expected = exact_text(sum, u8::try_from(scale).unwrap());
            let found = match &part.totals.0[at].value {
                Some(Scalar::Int(v)) => exact_text(*v, 0),
                Some(Scalar::Decimal { unscaled, scale }) => exact_text(*unscaled, *scale),
                other => panic!("seed {seed}: {other:?}"),
            };
            assert_eq!(found, expected, "seed {seed}: total of m{at} in {}", part.partition);
        }
    }
}

async fn check(seed: u64, contract: fn(&mut Dice) -> DataType) -> bool {
    let mut dice = Dice(seed);
    let case = case(&mut dice, contract);
    let toml = case.toml();
    let Ok(definition) = pipeline::parse(&toml, "test") else { return false };
    let bed = Bed::new();
    case.write(&bed, &mut dice);
    let all = case.partitions();
    let named: BTreeSet<String> = all.iter().filter(|_| !dice.one_in(3)).cloned().collect();
    let scope = (!named.is_empty() && !dice.one_in(4)).then_some(named);
    let expected = compute(&case, scope.as_ref());
    let texts: Vec<&str> = scope.iter().flatten().map(String::as_str).collect();
    let made = match bed.run(&toml, &texts).await {
        Err(error) if expected.overflows => {
            assert_eq!(error.kind, "sum-overflow", "seed {seed}: {error:?}\n{toml}");
            return true;
        }
        Err(error) => panic!("seed {seed}: {error:?}\n{toml}"),
        Ok(made) => made,
    };
    assert!(!expected.overflows, "seed {seed}: a sum was to overflow\n{toml}");
    assert_eq!(made.books(), expected.books, "seed {seed}\n{toml}");
    let mut strays = made.report.rows.out_of_scope_by_partition.clone();
    if strays.remove("other").is_none() {
        assert_eq!(strays, expected.strays, "seed {seed}\n{toml}");
    }
    let mut rows = BTreeMap::new();
    for (partition, frame) in &made.files {
        let outputs = definition.dimensions.iter().map(|d| &d.expr.data_type);
        for (output, found) in outputs.chain(definition.measures.iter().map(|m| &m.data_type)).zip(frame.columns()) {
            assert_eq!(*found.dtype(), file_type(output), "seed {seed}: {}\n{toml}", found.name());
        }
        for mut row in made.rows(partition) {
            let measures = row.split_off(case.dimensions.len());
            let before = rows.insert((partition.clone(), row), measures);
            assert!(before.is_none(), "seed {seed}: a group comes twice\n{toml}");
        }
    }
    assert_eq!(rows, expected.rows, "seed {seed}\n{toml}");
    for part in &made.report.partitions {
        let expected = expected.source_rows.get(part.partition.as_str()).copied().unwrap_or(0);
        assert_eq!(part.source_rows, expected, "seed {seed}: {}\n{toml}", part.partition);
    }
    assert_totals(&case, &made.report, &rows, seed);
    // What a partition becomes does not depend on what else is named.
    if let Some(one) = made.report.partitions.first() {
        let alone = bed.run(&toml, &[one.partition.as_str()]).await;
        let alone = alone.unwrap_or_else(|e| panic!("seed {seed}: alone {e:?}\n{toml}"));
        let only = compute(&case, Some(&BTreeSet::from([one.partition.to_string()])));
        assert_eq!(alone.books(), only.books, "seed {seed}: {} alone\n{toml}", one.partition);
        assert_eq!(alone.report.partitions[0].sha256, one.sha256, "seed {seed}: {}\n{toml}", one.partition);
    }
    true
}

pub(super) async fn check_all(seeds: std::ops::Range<u64>, contract: fn(&mut Dice) -> DataType) {
    let count = seeds.end - seeds.start;
    let mut accepted = 0;
    for seed in seeds {
        accepted += u64::from(check(seed, contract).await);
    }
    assert!(accepted * 10 > count * 8, "{accepted} of {count} pipelines are accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_pipelines_come_out_as_row_by_row() {
    check_all(0..60, contract).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_made_up_pipelines_come_out_as_row_by_row() {
    check_all(1000..1060, contract).await;
}
