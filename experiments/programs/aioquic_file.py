"""A file over one stream of QUIC, by aioquic.

python aioquic_file.py server ADDRESS PORT     serves www/file, with test-cert.pem and test-key.pem
python aioquic_file.py client ADDRESS PORT     fetches it, and prints its bytes
"""

import asyncio
import ssl
import sys
from pathlib import Path

from aioquic.asyncio import connect, serve  # type: ignore[import-not-found]
from aioquic.quic.configuration import QuicConfiguration  # type: ignore[import-not-found]

PROTOCOL = ["hq-interop"]


async def fetch(address: str, port: int) -> int:
    """The number of bytes that the server sends."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=PROTOCOL, verify_mode=ssl.CERT_NONE)
    async with connect(address, port, configuration=configuration) as connection:
        reader, writer = await connection.create_stream()
        writer.write(b"GET /file\r\n")
        writer.write_eof()
        return len(await reader.read())


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers the request of one stream."""
    await reader.read()
    writer.write(Path("www/file").read_bytes())
    writer.write_eof()


async def listen(address: str, port: int) -> None:
    """Serves until it is killed."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=PROTOCOL)
    configuration.load_cert_chain("test-cert.pem", "test-key.pem")
    tasks = set()

    def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(answer(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await serve(address, port, configuration=configuration, stream_handler=handle)
    await asyncio.Event().wait()


if __name__ == "__main__":
    role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "server":
        asyncio.run(listen(address, port))
    else:
        print(asyncio.run(fetch(address, port)))
