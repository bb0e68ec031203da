/* The floor of traces.py: maps a little-endian pcap and looks at every record's header, nothing more.
 *
 * usage: walker FILE     prints the number of records and their bytes on the wire */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
    struct stat status;
    int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &status)) {
        fprintf(stderr, "usage: walker FILE\n");
        return 2;
    }
    size_t size = (size_t)status.st_size;
    const uint8_t *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) {
        perror(argv[1]);
        return 1;
    }
    uint64_t records = 0, bytes = 0;
    for (size_t at = 24; at + 16 <= size;) {
        uint32_t header[4];
        memcpy(header, data + at, sizeof header);
        records++;
        bytes += header[3];
        at += 16 + header[2];
    }
    printf("%llu %llu\n", (unsigned long long)records, (unsigned long long)bytes);
    return 0;
}
