package dns

import (
	"fmt"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	ttl = 5 // seconds: records of a rack change when a service moves
	// plainSize is what fits a datagram to a client that names no size.
	plainSize = 512
	// largestSize is more than any answer of a rack takes.
	largestSize = 4096
)

// answer makes the answer to a query, nil for one that can not be answered.
func (r Records) answer(query []byte) []byte {
	var p dnsmessage.Parser

	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}

	reply := dnsmessage.Header{ID: head.ID, Response: true, OpCode: head.OpCode, Authoritative: true, RecursionDesired: head.RecursionDesired}

	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		reply.RCode = dnsmessage.RCodeFormatError

		return pack(dnsmessage.Message{Header: reply})
	}

	out := dnsmessage.Message{Header: reply, Questions: questions}

	if head.OpCode != 0 {
		out.RCode = dnsmessage.RCodeNotImplemented

		return pack(out)
	}

	out.RCode, out.Answers = r.find(questions[0])

	raw := pack(out)
	if len(raw) > clientSize(&p) {
		out.Truncated, out.Answers = true, nil
		raw = pack(out)
	}

	return raw
}

func pack(m dnsmessage.Message) []byte {
	raw, err := m.Pack()
	if err != nil {
		return nil
	}

	return raw
}

// clientSize is how long an answer the client takes, which stands in place of a
// class in its OPT record.
func clientSize(p *dnsmessage.Parser) int {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return plainSize
	}

	for {
		head, err := p.AdditionalHeader()
		if err != nil {
			return plainSize
		}

		if head.Type == dnsmessage.TypeOPT {
			return max(plainSize, int(head.Class))
		}

		if p.SkipAdditional() != nil {
			return plainSize
		}
	}
}

func (r Records) find(q dnsmessage.Question) (dnsmessage.RCode, []dnsmessage.Resource) {
	name, in := strings.CutSuffix(strings.ToLower(q.Name.String()), "."+Zone+".")
	if !in {
		return dnsmessage.RCodeRefused, nil
	}

	records, found := r[name]
	if !found {
		return dnsmessage.RCodeNameError, nil
	}

	var out []dnsmessage.Resource

	for _, record := range records {
		body, kind, err := record.body()
		if err != nil {
			return dnsmessage.RCodeServerFailure, nil
		}

		if q.Type == kind || q.Type == dnsmessage.TypeALL {
			head := dnsmessage.ResourceHeader{Name: q.Name, Type: kind, Class: dnsmessage.ClassINET, TTL: ttl}
			out = append(out, dnsmessage.Resource{Header: head, Body: body})
		}
	}

	return dnsmessage.RCodeSuccess, out
}

func (r Record) body() (dnsmessage.ResourceBody, dnsmessage.Type, error) {
	if r.Port == 0 {
		return &dnsmessage.AAAAResource{AAAA: r.Address.As16()}, dnsmessage.TypeAAAA, nil
	}

	target, err := dnsmessage.NewName(r.Target + "." + Zone + ".")
	if err != nil {
		return nil, 0, fmt.Errorf("name %q: %w", r.Target, err)
	}

	return &dnsmessage.SRVResource{Port: r.Port, Target: target}, dnsmessage.TypeSRV, nil
}
