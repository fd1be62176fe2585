package rack

import "time"

const opPing = "ping"

func (s *Server) ping(*call) (answer, error) {
	return ok(map[string]string{"status": "ok"}), nil
}

type currentUser struct {
	ID           string    `json:"id"`
	DisplayName  string    `json:"display_name"`
	SiloID       string    `json:"silo_id"`
	SiloName     string    `json:"silo_name"`
	SiloAdmin    bool      `json:"silo_admin"`
	FleetViewer  bool      `json:"fleet_viewer"`
	TimeCreated  time.Time `json:"time_created"`
	TimeModified time.Time `json:"time_modified"`
}

func (s *Server) me(c *call) (answer, error) {
	return ok(currentUser{
		ID: c.user.id, DisplayName: c.user.name, SiloID: s.siloID, SiloName: s.cfg.Silo,
		SiloAdmin: c.siloRole() == RoleAdmin, FleetViewer: c.token.FleetViewer,
		TimeCreated: c.user.created, TimeModified: c.user.modified,
	}), nil
}

type resourceCounts struct {
	CPUs    int64 `json:"cpus"`
	Memory  int64 `json:"memory"`
	Storage int64 `json:"storage"`
}

func (q Quota) view() resourceCounts { return resourceCounts(q) }

// utilization is the silo's quota, and what counts against it now.
func (s *Server) utilization(*call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return ok(map[string]resourceCounts{
		"capacity":    s.quota().view(),
		"provisioned": s.provisioned.view(),
	}), nil
}

// findSilo resolves the silo of a path, for those who may look at the fleet.
func (s *Server) findSilo(c *call) error {
	if err := c.requireFleetViewer(); err != nil {
		return err
	}

	if selector := c.path("silo"); selector != s.cfg.Silo && canonicalID(selector) != s.siloID {
		return notFound("silo", selector)
	}

	return nil
}

type quotasView struct {
	SiloID string `json:"silo_id"`
	resourceCounts
}

func (s *Server) quotas(c *call) (answer, error) {
	if err := s.findSilo(c); err != nil {
		return answer{}, err
	}

	return ok(quotasView{s.siloID, s.cfg.Quota.view()}), nil
}

type siloUtilizationView struct {
	SiloID      string         `json:"silo_id"`
	SiloName    string         `json:"silo_name"`
	Provisioned resourceCounts `json:"provisioned"`
	Allocated   resourceCounts `json:"allocated"`
}

func (s *Server) siloUtilization(c *call) (answer, error) {
	if err := s.findSilo(c); err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return ok(siloUtilizationView{s.siloID, s.cfg.Silo, s.provisioned.view(), s.cfg.Quota.view()}), nil
}

// copies is how often the rack stores each byte of a distributed disk.
const copies = 3

// chargeStorage takes quota, then space on the rack's disks.
func (s *Server) chargeStorage(size int64, physical bool) error {
	if s.provisioned.Storage+size > s.quota().Storage {
		return noCapacity("Storage Limit Exceeded: Not enough storage to complete request. " +
			"Either remove unneeded disks and snapshots to free up resources or contact the rack operator to request a capacity increase.")
	}

	if physical && s.physical+copies*size > s.cfg.RackStorage {
		return noCapacity("Not enough storage")
	}

	s.provisioned.Storage += size
	if physical {
		s.physical += copies * size
	}

	return nil
}

func (s *Server) freeStorage(size int64, physical bool) {
	s.provisioned.Storage -= size
	if physical {
		s.physical -= copies * size
	}
}
