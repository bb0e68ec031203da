//! Writing Parquet files, row group by row group.

use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

/// Columns of growing numbers, whose differences are small.
const DELTA_ENCODED: [&str; 8] = ["time_ns", "seq", "ack", "in_order", "frame", "rtt_ns", "left", "right"];

/// A Parquet file that is being written.
pub(super) struct Table(SerializedFileWriter<File>);

impl Table {
    /// `schema` is in the language of `parse_message_type`.
    pub(super) fn create(path: &Path, schema: &str) -> Result<Table, String> {
        let file = File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let schema = Arc::new(parse_message_type(schema).expect("the schema is constant and valid"));
        let mut properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("level 1 exists")));
        for name in DELTA_ENCODED {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        SerializedFileWriter::new(file, schema, Arc::new(properties.build())).map(Table).map_err(unwritable)
    }

    /// Begins a row group. Its columns are written in the schema's order.
    pub(super) fn row_group(&mut self) -> Result<RowGroup<'_>, String> {
        self.0.next_row_group().map(RowGroup).map_err(unwritable)
    }

    /// Copies every row group of another file with the same schema.
    pub(super) fn append(&mut self, path: &Path) -> Result<(), String> {
        let unreadable = |error: &dyn Display| format!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        let reader = SerializedFileReader::new(file).map_err(|error| unreadable(&error))?;
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        for from in reader.metadata().row_groups() {
            let mut group = self.row_group()?;
            for column in from.columns() {
                let closed = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: from.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                group.0.append_column(&file, closed).map_err(unwritable)?;
            }
            group.close()?;
        }
        Ok(())
    }

    pub(super) fn close(self) -> Result<(), String> {
        self.0.close().map(|_| ()).map_err(unwritable)
    }
}

/// A row group that is being written.
pub(super) struct RowGroup<'a>(SerializedRowGroupWriter<'a, File>);

impl RowGroup<'_> {
    pub(super) fn int32(&mut self, values: &[i32]) -> Result<(), String> {
        self.column::<Int32Type>(values, None)
    }

    pub(super) fn int64(&mut self, values: &[i64]) -> Result<(), String> {
        self.column::<Int64Type>(values, None)
    }

    /// `present` has a 1 for each row with a value, else a 0.
    pub(super) fn optional_int64(&mut self, values: &[i64], present: &[i16]) -> Result<(), String> {
        self.column::<Int64Type>(values, Some(present))
    }

    pub(super) fn text(&mut self, values: &[ByteArray]) -> Result<(), String> {
        self.column::<ByteArrayType>(values, None)
    }

    fn column<T: DataType>(&mut self, values: &[T::T], present: Option<&[i16]>) -> Result<(), String> {
        let mut column = self.0.next_column().map_err(unwritable)?.expect("the schema has this column");
        column.typed::<T>().write_batch(values, present, None).map_err(unwritable)?;
        column.close().map_err(unwritable)
    }

    pub(super) fn close(self) -> Result<(), String> {
        self.0.close().map(|_| ()).map_err(unwritable)
    }
}

fn unwritable(error: parquet::errors::ParquetError) -> String {
    format!("cannot write a table: {error}")
}
