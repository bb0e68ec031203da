// Client and server over a modem, in virtual time.
package download

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestADownloadOverAModemEndsInTime(t *testing.T) {
	// Below the project: programs in virtual time see the system's files and the working folder's.
	built, err := filepath.Abs("bin")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", built+"/", "./...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	// distribution/ci names the folder that it compares.
	results := os.Getenv("BACKCHANNEL_RESULTS")
	if results == "" {
		results = filepath.Join(built, "lines")
	}
	line := exec.Command("backchannel", "line", "dialup-28.8", "--name", "download", "--seeds", "3",
		"--results", results, "--metric", "size={json: bytes, unit: byte}",
		"--server", filepath.Join(built, "server")+" {server} {port}",
		"--client", filepath.Join(built, "client")+" {server} {port}")
	line.Stderr = os.Stderr
	output, err := line.Output()
	if err != nil {
		t.Fatal(err)
	}
	var runs []struct{ Metrics map[string]float64 }
	if err := json.Unmarshal(output, &runs); err != nil {
		t.Fatal(err)
	}
	if len(runs) != 3 {
		t.Fatalf("%d runs", len(runs))
	}
	for _, run := range runs {
		if size := run.Metrics["output.size"]; size != 20_000 {
			t.Errorf("%v bytes", size)
		}
		if seconds := run.Metrics["completion_time"]; seconds >= 10 {
			t.Errorf("%v s", seconds)
		}
	}
}
