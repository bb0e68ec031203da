//! Writing Parquet files, row group by row group.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use backchannel_core::{Error, ResultExt};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::{get_column_writer, get_typed_column_writer, ColumnCloseResult};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, SchemaDescPtr, SchemaDescriptor};

/// Columns of growing numbers, whose differences are small.
const DELTA_ENCODED: [&str; 8] = ["time_ns", "seq", "ack", "in_order", "frame", "rtt_ns", "left", "right"];

/// What a failure to encode or to write is an error of.
const WRITING: &str = "cannot write a table";

/// Schema and encodings of a table, with which any thread can encode its row groups.
#[derive(Clone)]
pub(super) struct Layout {
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
}

impl Layout {
    /// `schema` is in the language of `parse_message_type`.
    pub(super) fn new(schema: &str) -> Layout {
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
        Layout { schema: Arc::new(SchemaDescriptor::new(schema)), properties: Arc::new(properties.build()) }
    }

    /// Begins a row group in memory. Its columns are encoded in the schema's order.
    pub(super) fn row_group(&self) -> RowGroup<'_> {
        RowGroup { layout: self, columns: Vec::new() }
    }
}

/// A Parquet file that is being written.
pub(super) struct Table {
    layout: Layout,
    writer: SerializedFileWriter<File>,
}

impl Table {
    pub(super) fn create(path: &Path, layout: &Layout) -> Result<Table, Error> {
        let file = File::create(path).or_system(format_args!("cannot write {}", path.display()))?;
        let writer = SerializedFileWriter::new(file, layout.schema.root_schema_ptr(), layout.properties.clone());
        Ok(Table { layout: layout.clone(), writer: writer.or_system(WRITING)? })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Writes a row group.
    pub(super) fn write(&mut self, group: Encoded) -> Result<(), Error> {
        let mut to = self.writer.next_row_group().or_system(WRITING)?;
        for (bytes, closed) in group.0 {
            to.append_column(&bytes, closed).or_system(WRITING)?;
        }
        to.close().map(|_| ()).or_system(WRITING)
    }

    /// Copies every row group of another file with the same schema.
    pub(super) fn append(&mut self, path: &Path) -> Result<(), Error> {
        let reading = format!("cannot read {}", path.display());
        let file = File::open(path).or_system(&reading)?;
        let reader = SerializedFileReader::new(file).or_system(&reading)?;
        let file = File::open(path).or_system(&reading)?;
        for from in reader.metadata().row_groups() {
            let mut group = self.writer.next_row_group().or_system(WRITING)?;
            for column in from.columns() {
                let closed = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: from.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                group.append_column(&file, closed).or_system(WRITING)?;
            }
            group.close().or_system(WRITING)?;
        }
        Ok(())
    }

    pub(super) fn close(self) -> Result<(), Error> {
        self.writer.close().map(|_| ()).or_system(WRITING)
    }
}

/// A row group that is being encoded.
pub(super) struct RowGroup<'a> {
    layout: &'a Layout,
    columns: Vec<(Bytes, ColumnCloseResult)>,
}

/// A row group as it will be in the file.
pub(super) struct Encoded(Vec<(Bytes, ColumnCloseResult)>);

impl RowGroup<'_> {
    pub(super) fn int32(&mut self, values: &[i32]) -> Result<(), Error> {
        self.column::<Int32Type>(values, None)
    }

    pub(super) fn int64(&mut self, values: &[i64]) -> Result<(), Error> {
        self.column::<Int64Type>(values, None)
    }

    /// `present` has a 1 for each row with a value, else a 0.
    pub(super) fn optional_int64(&mut self, values: &[i64], present: &[i16]) -> Result<(), Error> {
        self.column::<Int64Type>(values, Some(present))
    }

    pub(super) fn text(&mut self, values: &[ByteArray]) -> Result<(), Error> {
        self.column::<ByteArrayType>(values, None)
    }

    fn column<T: DataType>(&mut self, values: &[T::T], present: Option<&[i16]>) -> Result<(), Error> {
        let description = self.layout.schema.column(self.columns.len());
        let mut bytes = TrackedWrite::new(Vec::new());
        let pages = Box::new(SerializedPageWriter::new(&mut bytes));
        let mut column =
            get_typed_column_writer::<T>(get_column_writer(description, self.layout.properties.clone(), pages));
        column.write_batch(values, present, None).or_system(WRITING)?;
        let closed = column.close().or_system(WRITING)?;
        self.columns.push((bytes.into_inner().or_system(WRITING)?.into(), closed));
        Ok(())
    }

    pub(super) fn finish(self) -> Encoded {
        debug_assert_eq!(self.columns.len(), self.layout.schema.num_columns());
        Encoded(self.columns)
    }
}
