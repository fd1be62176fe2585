// Package link is the simulators' stand-in for the WireGuard tunnel between
// Omni and a machine, and for the Talos API that Omni calls through it.
//
// A guest that was admitted by Omni's real SideroLink Provision call dials the
// TCP address that stands as server_endpoint in the answer, and both sides
// then exchange JSON messages, one a line. The guest speaks first, with Hello.
// Omni then sends commands, each with a number; the guest answers each with a
// Result of the same number, and may send Events at any time.
//
//	guest                         Omni
//	  | -- Hello ------------------> |
//	  | <------------ Command(1) --- |   apply-config, reset, ping
//	  | -- Result(1) --------------> |
//	  | -- Event ------------------> |   stage changed
package link

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// maxMessage bounds one message, in bytes. Machine configs are far smaller.
const maxMessage = 8 << 20

// Stage is what a Talos machine is doing.
type Stage string

// The stages that the simulated guest goes through.
const (
	// StageMaintenance is a machine without a full machine config.
	StageMaintenance Stage = "maintenance"
	// StageRunning is a machine that has a config and runs it.
	StageRunning Stage = "running"
	// StageResetting is a machine that wipes itself.
	StageResetting Stage = "resetting"
)

// Hello introduces a guest. NodePublicKey must be the one that was admitted.
type Hello struct {
	UUID          string `json:"uuid"`
	NodePublicKey string `json:"node_public_key"`
	TalosVersion  string `json:"talos_version"`
	Schematic     string `json:"schematic"`
	Arch          string `json:"arch"`
	Stage         Stage  `json:"stage"`
	Hostname      string `json:"hostname"`
	// Platform is the platform in Talos' PlatformMetadata resource, empty when
	// the guest published none.
	Platform string `json:"platform"`
	// Addresses are the guest's own addresses.
	Addresses []string `json:"addresses,omitempty"`
}

// Verb is what a command asks for.
type Verb string

// The commands.
const (
	VerbPing        Verb = "ping"
	VerbApplyConfig Verb = "apply-config"
	VerbReset       Verb = "reset"
)

// Command is sent by Omni.
type Command struct {
	Number uint64 `json:"number"`
	Verb   Verb   `json:"verb"`
	// Config is the machine config, YAML documents, for VerbApplyConfig.
	Config string `json:"config,omitempty"`
	// Reboot asks a reset to reboot into maintenance, otherwise the guest halts.
	Reboot bool `json:"reboot,omitempty"`
}

// Result answers the command of the same number. Error is empty on success.
type Result struct {
	Number uint64 `json:"number"`
	Error  string `json:"error,omitempty"`
}

// Event reports a change of the guest.
type Event struct {
	Stage    Stage  `json:"stage"`
	Hostname string `json:"hostname,omitempty"`
}

// Message is one line on the wire: exactly one field is set.
type Message struct {
	Hello   *Hello   `json:"hello,omitempty"`
	Command *Command `json:"command,omitempty"`
	Result  *Result  `json:"result,omitempty"`
	Event   *Event   `json:"event,omitempty"`
}

// Conn carries messages. Send may be called from several goroutines, Receive
// from one.
type Conn struct {
	conn    net.Conn
	scanner *bufio.Scanner

	mu  sync.Mutex
	enc *json.Encoder
}

// NewConn takes over c.
func NewConn(c net.Conn) *Conn {
	s := bufio.NewScanner(c)
	s.Buffer(make([]byte, 0, 4096), maxMessage)

	return &Conn{conn: c, scanner: s, enc: json.NewEncoder(c)}
}

// Send writes one message.
func (c *Conn) Send(m Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.conn.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}

	return c.enc.Encode(m)
}

// Receive blocks for the next message. It fails with net.ErrClosed or io.EOF's
// kin when the connection has ended.
func (c *Conn) Receive() (Message, error) {
	var m Message

	if !c.scanner.Scan() {
		if err := c.scanner.Err(); err != nil {
			return m, err
		}

		return m, errors.New("link: the peer closed the connection")
	}

	if err := json.Unmarshal(c.scanner.Bytes(), &m); err != nil {
		return m, fmt.Errorf("link: decoding a message: %w", err)
	}

	return m, nil
}

// Close ends the connection; a blocked Receive returns.
func (c *Conn) Close() error { return c.conn.Close() }
