//! `datagrams.parquet`: one row per packet of UDP and per echo of ICMP.

use std::net::IpAddr;
use std::path::Path;

use backchannel_core::Error;
use parquet::data_type::ByteArray;

use super::parquet::{Layout, Table};
use super::ROWS;
use crate::datagram::Datagram;
use crate::packet::Address;

const COLUMNS: &str = "message datagrams {
    required int32 file (integer(16,false));
    required int64 time_ns;
    required int32 protocol (integer(8,false));
    required binary src (utf8);
    required int32 first (integer(16,false));
    required binary dst (utf8);
    required int32 second (integer(16,false));
    required int32 reply (integer(8,false));
    required int32 ip_len (integer(32,false));
    required int32 ip_id (integer(16,false));
    required int32 checksum (integer(16,false));
}";

/// The file, and the rows that are not written yet.
pub(super) struct DatagramTable {
    table: Table,
    rows: Vec<(i64, Datagram)>,
}

impl DatagramTable {
    pub(super) fn create(path: &Path) -> Result<DatagramTable, Error> {
        Ok(DatagramTable { table: Table::create(path, &Layout::new(COLUMNS))?, rows: Vec::new() })
    }

    /// Adds a packet of the capture with this number.
    pub(super) fn push(&mut self, file: i32, time_ns: i64, datagram: Datagram) -> Result<(), Error> {
        self.rows.push((time_ns, datagram));
        if self.rows.len() == ROWS {
            self.write(file)?;
        }
        Ok(())
    }

    /// Writes the rows of a capture that are left.
    pub(super) fn end_file(&mut self, file: i32) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.write(file)
    }

    fn write(&mut self, file: i32) -> Result<(), Error> {
        let layout = self.table.layout().clone();
        let mut group = layout.row_group();
        let text = |address: Address| ByteArray::from(IpAddr::from(address).to_string().into_bytes());
        let numbers = |value: fn(&Datagram) -> i32| -> Vec<i32> {
            self.rows.iter().map(|(_, datagram)| value(datagram)).collect()
        };
        let texts = |value: fn(&Datagram) -> Address| -> Vec<ByteArray> {
            self.rows.iter().map(|(_, datagram)| text(value(datagram))).collect()
        };
        group.int32(&vec![file; self.rows.len()])?;
        group.int64(&self.rows.iter().map(|(time_ns, _)| *time_ns).collect::<Vec<_>>())?;
        group.int32(&numbers(|datagram| datagram.protocol.into()))?;
        group.text(&texts(|datagram| datagram.src))?;
        group.int32(&numbers(|datagram| datagram.numbers[0].into()))?;
        group.text(&texts(|datagram| datagram.dst))?;
        group.int32(&numbers(|datagram| datagram.numbers[1].into()))?;
        group.int32(&numbers(|datagram| datagram.reply.into()))?;
        group.int32(&numbers(|datagram| datagram.ip_len as i32))?;
        group.int32(&numbers(|datagram| datagram.ip_id.into()))?;
        group.int32(&numbers(|datagram| datagram.checksum.into()))?;
        let encoded = group.finish();
        self.rows.clear();
        self.table.write(encoded)
    }

    /// Copies what a thread wrote.
    pub(super) fn append(&mut self, path: &Path) -> Result<(), Error> {
        self.table.append(path)
    }

    pub(super) fn close(self) -> Result<(), Error> {
        self.table.close()
    }
}
