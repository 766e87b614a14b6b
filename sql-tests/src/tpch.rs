//! TPC-H data: the tables of a small scale as CSV files, with some orders held back to come
//! later (the refresh stream).

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use spate_engine::types::{Result, SpateError};
use tpchgen::csv::{CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv};
use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::text::TextPool;

/// Names of the tables.
pub const TABLES: &[&str] = &["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

/// Words that comments are cut from; the standard's 300 MB take minutes in a debug build.
const TEXT_BYTES: i32 = 1 << 20;

/// One order in so many comes later.
const LATER_ONE_IN: i64 = 5;

fn failed(path: &Path, e: &dyn Display) -> SpateError {
    SpateError::internal(format!("cannot write {}: {e}", path.display()))
}

fn write(dir: &Path, name: &str, header: &str, rows: impl Iterator<Item = String>) -> Result<()> {
    let path = dir.join(format!("{name}.csv"));
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path).map_err(|e| failed(&path, &e))?);
    writeln!(out, "{header}").map_err(|e| failed(&path, &e))?;
    for row in rows {
        writeln!(out, "{row}").map_err(|e| failed(&path, &e))?;
    }
    out.flush().map_err(|e| failed(&path, &e))
}

/// Whether an order comes later.
fn later(order: i64) -> bool {
    order / 4 % LATER_ONE_IN == 0
}

/// Writes `TABLE.csv` for all tables of a scale, and `orders-later.csv` and `lineitem-later.csv` with
/// the orders that are held back.
pub fn write_tables(dir: &Path, scale: f64) -> Result<()> {
    let d = Distributions::static_default();
    let text = TextPool::new(TEXT_BYTES, d);
    let region = RegionGenerator::new_with_distributions_and_text_pool(d, &text);
    write(dir, "region", RegionCsv::header(), region.iter().map(|r| RegionCsv::new(r).to_string()))?;
    let nation = NationGenerator::new_with_distributions_and_text_pool(d, &text);
    write(dir, "nation", NationCsv::header(), nation.iter().map(|r| NationCsv::new(r).to_string()))?;
    let supplier = SupplierGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, &text);
    write(dir, "supplier", SupplierCsv::header(), supplier.iter().map(|r| SupplierCsv::new(r).to_string()))?;
    let customer = CustomerGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, &text);
    write(dir, "customer", CustomerCsv::header(), customer.iter().map(|r| CustomerCsv::new(r).to_string()))?;
    let part = PartGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, &text);
    write(dir, "part", PartCsv::header(), part.iter().map(|r| PartCsv::new(r).to_string()))?;
    let partsupp = PartSuppGenerator::new_with_text_pool(scale, 1, 1, &text);
    write(dir, "partsupp", PartSuppCsv::header(), partsupp.iter().map(|r| PartSuppCsv::new(r).to_string()))?;
    for held_back in [false, true] {
        let name = |table: &str| if held_back { format!("{table}-later") } else { table.to_owned() };
        let orders = OrderGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, &text);
        let rows = orders.iter().filter(|r| later(r.o_orderkey) == held_back);
        write(dir, &name("orders"), OrderCsv::header(), rows.map(|r| OrderCsv::new(r).to_string()))?;
        let lines = LineItemGenerator::new_with_distributions_and_text_pool(scale, 1, 1, d, &text);
        let rows = lines.iter().filter(|r| later(r.l_orderkey) == held_back);
        write(dir, &name("lineitem"), LineItemCsv::header(), rows.map(|r| LineItemCsv::new(r).to_string()))?;
    }
    Ok(())
}
